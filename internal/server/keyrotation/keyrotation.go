// Package keyrotation replaces the key that encrypts Secrets in the database of the management
// server, while it runs. Each step can be interrupted; the next call continues.
package keyrotation

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// pageSize is the number of Secrets in one list response.
const pageSize = 200

// Keys are the saved encryption keys, the first of which encrypts.
type Keys interface {
	AddEncryptionKey() (name string, err error)
	PromoteEncryptionKey(name string) error
	PruneEncryptionKeys() error
	EncryptionKeyNames() ([]string, error)
}

// A Waiter waits until the API server uses the saved keys.
type Waiter interface {
	WaitForEncryptionKeys(ctx context.Context) error
}

// A Result describes a rotation.
type Result struct {
	// Key is the name of the new key.
	Key string `json:"key"`
	// Secrets is the number of Secrets that were encrypted again.
	Secrets int `json:"secrets"`
}

// Rotate makes a new key, encrypts all Secrets with it, and removes the other keys. The API
// server can read all Secrets at any time: it gets a key for reading before the key is used for
// writing, and loses a key only after all Secrets have another one.
func Rotate(ctx context.Context, keys Keys, server Waiter, client kubernetes.Interface) (Result, error) {
	names, err := keys.EncryptionKeyNames()
	if err != nil {
		return Result{}, err
	}
	if len(names) == 0 {
		return Result{}, errors.New("there is no encryption key")
	}
	if len(names) == 1 {
		added, err := keys.AddEncryptionKey()
		if err != nil {
			return Result{}, fmt.Errorf("adding an encryption key: %w", err)
		}
		names = append(names, added)
	}
	newest := newestName(names)
	if err := server.WaitForEncryptionKeys(ctx); err != nil {
		return Result{}, err
	}
	if err := keys.PromoteEncryptionKey(newest); err != nil {
		return Result{}, fmt.Errorf("using encryption key %s: %w", newest, err)
	}
	if err := server.WaitForEncryptionKeys(ctx); err != nil {
		return Result{}, err
	}
	count, err := rewriteSecrets(ctx, client)
	if err != nil {
		return Result{}, fmt.Errorf("encrypting the Secrets again: %w", err)
	}
	if err := keys.PruneEncryptionKeys(); err != nil {
		return Result{}, fmt.Errorf("removing the previous encryption keys: %w", err)
	}
	return Result{Key: newest, Secrets: count}, server.WaitForEncryptionKeys(ctx)
}

// newestName returns the newest key: names have increasing numbers.
func newestName(names []string) string {
	newest := names[0]
	for _, name := range names {
		if len(name) > len(newest) || len(name) == len(newest) && name > newest {
			newest = name
		}
	}
	return newest
}

// rewriteSecrets writes each Secret without a change. The API server encrypts a Secret with the
// first key if it has another one.
func rewriteSecrets(ctx context.Context, client kubernetes.Interface) (count int, err error) {
	page := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := client.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, page)
		if apierrors.IsResourceExpired(err) && page.Continue != "" {
			page.Continue, count = "", 0 // the list took too long; later pages have other Secrets
			continue
		}
		if err != nil {
			return count, err
		}
		for _, secret := range list.Items {
			err := retry.OnError(retry.DefaultBackoff, isTransient, func() error {
				_, err := client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
				return err
			})
			switch {
			case apierrors.IsNotFound(err): // deleted since
			case err != nil:
				return count, fmt.Errorf("%s/%s: %w", secret.Namespace, secret.Name, err)
			default:
				count++
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return count, nil
		}
	}
}

// isTransient reports whether a write can succeed at the next attempt.
func isTransient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}
