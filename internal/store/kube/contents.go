package kube

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/records"
)

// Labels and annotations of Secrets with records.
const (
	labelRecord    = v1alpha1.Group + "/record"
	labelCluster   = v1alpha1.LabelCluster
	labelOperation = v1alpha1.Group + "/operation"
	labelPartOf    = v1alpha1.Group + "/part-of" // of further Secrets: the name of the first one

	annotationParts  = v1alpha1.Group + "/parts"  // the number of further Secrets
	annotationDigest = v1alpha1.Group + "/digest" // of the compressed content
	annotationWrite  = v1alpha1.Group + "/write"  // in the names of the further Secrets
)

// Keys of Secrets. A content is plain, or compressed and perhaps continued.
const (
	keyContent    = "content"
	keyCompressed = "content.zst"
)

const (
	// plainSize limits a content that is not compressed, in bytes.
	plainSize = 64 << 10
	// partSize limits the data of one Secret, in bytes. The API allows 1 MiB.
	partSize = 512 << 10
)

// A content is a named text in Secrets.
type content struct {
	name   string
	labels map[string]string
	owner  *metav1.OwnerReference // nil for none
}

// contents keeps contents.
type contents struct{ *connection }

// getSecret reads a Secret with a request.
func (c contents) getSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	s, err := c.core.CoreV1().Secrets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	return c.checkSecret(name, s, err)
}

// readSecret reads a Secret. It can be an earlier version: see Config.ReadSecret.
func (c contents) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	if c.ReadSecret == nil {
		return c.getSecret(ctx, name)
	}
	s, err := c.ReadSecret(ctx, c.Namespace, name)
	return c.checkSecret(name, s, err)
}

// checkSecret returns a Secret that was read, unless it is not a record.
func (c contents) checkSecret(name string, s *corev1.Secret, err error) (*corev1.Secret, error) {
	if err != nil {
		return nil, err
	}
	if s.Labels[labelRecord] == "" {
		return nil, diag.Refuse(idForeign, fmt.Sprintf("Secret %s/%s exists, but is not a record of Slipway", c.Namespace, name),
			"delete or rename the Secret")
	}
	return s, nil
}

// load returns a content, or records.ErrNotFound. A content of another owner counts as missing, unless
// owner is nil.
func (c contents) load(ctx context.Context, name string, owner *metav1.OwnerReference) (text []byte, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		first, err := c.readSecret(ctx, name)
		if err != nil {
			return err
		}
		if owner != nil && !slices.ContainsFunc(first.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
			return records.ErrNotFound
		}
		text, _, err = c.joinParts(ctx, first)
		return err
	})
	return text, err
}

// joinParts returns the content that begins with a Secret, and the names of its further Secrets.
func (c contents) joinParts(ctx context.Context, first *corev1.Secret) (text []byte, names []string, err error) {
	what := fmt.Sprintf("Secret %s/%s", c.Namespace, first.Name)
	if text, ok := first.Data[keyContent]; ok {
		return text, nil, nil
	}
	packed := bytes.Clone(first.Data[keyCompressed])
	parts, err := strconv.Atoi(first.Annotations[annotationParts])
	digest, write := first.Annotations[annotationDigest], first.Annotations[annotationWrite]
	if err != nil || parts < 0 || parts > maxParts || digest == "" || write == "" {
		return nil, nil, damagedError(what, errors.New("its annotations do not describe its parts"))
	}
	for i := 1; i <= parts; i++ {
		names = append(names, partName(first.Name, write, i))
		part, err := c.getSecret(ctx, names[i-1])
		if apierrors.IsNotFound(err) {
			if now, err := c.getSecret(ctx, first.Name); err != nil || now.ResourceVersion != first.ResourceVersion {
				return nil, nil, apierrors.NewConflict(corev1.Resource("secrets"), first.Name, errors.New("it was replaced during the read"))
			}
			return nil, nil, damagedError(what, fmt.Errorf("part %d of %d is missing", i, parts))
		}
		if err != nil {
			return nil, nil, err
		}
		packed = append(packed, part.Data[keyCompressed]...)
	}
	if digestOf(packed) != digest {
		return nil, nil, damagedError(what, errors.New("its digest is another one"))
	}
	if text, err = decompress(packed); err != nil {
		return nil, nil, damagedError(what, err)
	}
	return text, names, nil
}

// maxParts limits the number of further Secrets of a content.
const maxParts = 256

// decompress returns a compressed content, with the bound of other records.
func decompress(packed []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(bounded.Record)))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// partName returns the name of a further Secret. Each write has other names, so that no writer uses or
// deletes the parts of another one.
func partName(name, write string, i int) string { return fmt.Sprintf("%s.%s.%d", name, write, i) }

// firstName returns the name of the first Secret of a content.
func firstName(secret corev1.Secret) string {
	if secret.Labels[labelPartOf] == "" {
		return secret.Name
	}
	name := secret.Name
	for range 2 { // as in partName
		name = name[:max(0, strings.LastIndexByte(name, '.'))]
	}
	return name
}

// labelValue returns a text as the value of a label. A text that is too long becomes a digest.
func labelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	return digestOf([]byte(text))[:32]
}

// save replaces a content. An empty content removes it.
func (c contents) save(ctx context.Context, to content, text []byte) error {
	if len(text) == 0 {
		return c.remove(ctx, to.name)
	}
	return c.change(ctx, to, func([]byte) []byte { return text })
}

// create saves a content unless it exists, and returns the content that counts.
func (c contents) create(ctx context.Context, to content, text []byte) ([]byte, error) {
	counts := text
	err := c.change(ctx, to, func(now []byte) []byte {
		if counts = text; now != nil {
			counts = now
		}
		return counts
	})
	return counts, err
}

// change replaces a content by a function of the current one, which is nil if it does not exist. The
// first Secret is written last, and only if it has not changed: of several writers, one decides.
func (c contents) change(ctx context.Context, to content, change func(now []byte) []byte) error {
	return c.repeat(ctx, func(ctx context.Context) error {
		is, err := c.getSecret(ctx, to.name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		var now []byte
		var replaced []string // the further Secrets of the current content
		if err == nil {
			if now, replaced, err = c.joinParts(ctx, is); err != nil {
				return err
			}
		} else {
			is = nil
		}
		first, parts, err := c.splitContent(to, change(now))
		if err != nil || is != nil && isSame(is, first) {
			return err
		}
		for _, p := range parts {
			if _, err := c.core.CoreV1().Secrets(c.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		if err := c.putFirst(ctx, is, first); err != nil {
			return err
		}
		return c.deleteSecrets(ctx, replaced)
	})
}

// isSame reports whether a Secret has everything that another one has.
func isSame(is, want *corev1.Secret) bool {
	return maps.EqualFunc(is.Data, want.Data, bytes.Equal) && is.Annotations[annotationDigest] == want.Annotations[annotationDigest] &&
		maps.Equal(is.Labels, want.Labels) && apiequality.Semantic.DeepEqual(is.OwnerReferences, want.OwnerReferences)
}

// putFirst creates the first Secret of a content, or replaces the one that was read.
func (c contents) putFirst(ctx context.Context, is, want *corev1.Secret) error {
	secrets := c.core.CoreV1().Secrets(c.Namespace)
	if is == nil {
		_, err := secrets.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = apierrors.NewConflict(corev1.Resource("secrets"), want.Name, err)
		}
		return err
	}
	is.Data, is.Annotations, is.Labels, is.OwnerReferences = want.Data, want.Annotations, want.Labels, want.OwnerReferences
	_, err := secrets.Update(ctx, is, metav1.UpdateOptions{})
	return err
}

func (c contents) deleteSecrets(ctx context.Context, names []string) error {
	for _, name := range names {
		err := c.core.CoreV1().Secrets(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// splitContent returns the Secrets of a content.
func (c contents) splitContent(to content, text []byte) (first *corev1.Secret, parts []*corev1.Secret, err error) {
	secret := func(name string, labels map[string]string, key string, data []byte) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(labels)}, Data: map[string][]byte{key: data}}
		if to.owner != nil {
			s.OwnerReferences = []metav1.OwnerReference{*to.owner}
		}
		return s
	}
	if len(text) <= plainSize {
		return secret(to.name, to.labels, keyContent, text), nil, nil
	}
	compressor, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, nil, err
	}
	packed := compressor.EncodeAll(text, nil)
	digest, write := digestOf(packed), randomHex(8)
	first = secret(to.name, to.labels, keyCompressed, packed[:min(len(packed), partSize)])
	labels := map[string]string{labelRecord: "part", labelPartOf: labelValue(to.name)}
	if cluster := to.labels[labelCluster]; cluster != "" {
		labels[labelCluster] = cluster
	}
	for at := partSize; at < len(packed); at += partSize {
		name := partName(to.name, write, len(parts)+1)
		parts = append(parts, secret(name, labels, keyCompressed, packed[at:min(len(packed), at+partSize)]))
	}
	if len(parts) > maxParts {
		return nil, nil, fmt.Errorf("the content of %s has %d bytes, which is too much to save", to.name, len(text))
	}
	first.Annotations = map[string]string{annotationParts: strconv.Itoa(len(parts)), annotationDigest: digest, annotationWrite: write}
	return first, parts, nil
}

// remove removes a content. A missing one is removed already.
func (c contents) remove(ctx context.Context, name string) error {
	return c.repeat(ctx, func(ctx context.Context) error {
		switch _, err := c.getSecret(ctx, name); {
		case err == nil:
			if err := c.deleteSecrets(ctx, []string{name}); err != nil {
				return err
			}
		case !apierrors.IsNotFound(err):
			return err
		}
		list, err := c.core.CoreV1().Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labelPartOf + "=" + labelValue(name)})
		if err != nil {
			return err
		}
		var parts []string
		for _, p := range list.Items {
			parts = append(parts, p.Name)
		}
		return c.deleteSecrets(ctx, parts)
	})
}

// list returns the Secrets that a selector selects, sorted by name.
func (c contents) list(ctx context.Context, selector string) (out []corev1.Secret, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		list, err := c.core.CoreV1().Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil {
			out = list.Items
		}
		return err
	})
	return out, err
}

func (c contents) saveJSON(ctx context.Context, to content, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", to.name, err)
	}
	return c.save(ctx, to, text)
}

func (c contents) loadJSON(ctx context.Context, name string, owner *metav1.OwnerReference, v any) error {
	text, err := c.load(ctx, name, owner)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return damagedError(fmt.Sprintf("Secret %s/%s", c.Namespace, name), err)
	}
	return nil
}
