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
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
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
	labelCluster   = v1alpha1.Group + "/cluster"
	labelOperation = v1alpha1.Group + "/operation"
	labelPartOf    = v1alpha1.Group + "/part-of" // of further Secrets: the name of the first one

	annotationParts  = v1alpha1.Group + "/parts"  // the number of further Secrets
	annotationDigest = v1alpha1.Group + "/digest" // of the content
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

func (c contents) getSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	s, err := c.core.CoreV1().Secrets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if s.Labels[labelRecord] == "" {
		return nil, diag.Refuse(idForeign, fmt.Sprintf("Secret %s/%s exists, but is not a record of Slipway", c.Namespace, name),
			"delete or rename the Secret")
	}
	return s, nil
}

// load returns a content, or records.ErrNotFound.
func (c contents) load(ctx context.Context, name string) (text []byte, err error) {
	err = c.repeat(ctx, func(ctx context.Context) error {
		first, err := c.getSecret(ctx, name)
		if err != nil {
			return err
		}
		text, err = c.joinParts(ctx, first)
		return err
	})
	return text, err
}

// joinParts returns the content that begins with a Secret.
func (c contents) joinParts(ctx context.Context, first *corev1.Secret) ([]byte, error) {
	what := fmt.Sprintf("Secret %s/%s", c.Namespace, first.Name)
	if text, ok := first.Data[keyContent]; ok {
		return text, nil
	}
	packed := bytes.Clone(first.Data[keyCompressed])
	parts, err := strconv.Atoi(first.Annotations[annotationParts])
	digest := first.Annotations[annotationDigest]
	if err != nil || parts < 0 || parts > maxParts || digest == "" {
		return nil, damagedError(what, errors.New("its annotations do not describe its parts"))
	}
	for i := 1; i <= parts; i++ {
		part, err := c.getSecret(ctx, partName(first.Name, digest, i))
		if apierrors.IsNotFound(err) {
			if now, err := c.getSecret(ctx, first.Name); err != nil || now.ResourceVersion != first.ResourceVersion {
				return nil, apierrors.NewConflict(corev1.Resource("secrets"), first.Name, errors.New("it was replaced during the read"))
			}
			return nil, damagedError(what, fmt.Errorf("part %d of %d is missing", i, parts))
		}
		if err != nil {
			return nil, err
		}
		packed = append(packed, part.Data[keyCompressed]...)
	}
	text, err := decompress(packed)
	if err == nil && digestOf(text) != digest {
		err = errors.New("its digest is another one")
	}
	if err != nil {
		return nil, damagedError(what, err)
	}
	return text, nil
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

// partName returns the name of a further Secret. Another content has other names, so that a reader
// never joins parts of two contents.
func partName(name, digest string, i int) string {
	return fmt.Sprintf("%s.%s.%d", name, digest[:min(len(digest), 16)], i)
}

// partNumber returns the number at the end of a name of partName.
func partNumber(name string) int {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	return n
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
	first, parts, err := c.splitContent(to, text)
	if err != nil {
		return err
	}
	for _, p := range parts { // before the Secret that makes them count
		if err := c.putSecret(ctx, p, true); err != nil {
			return err
		}
	}
	if err := c.putSecret(ctx, first, true); err != nil {
		return err
	}
	return c.removeParts(ctx, to.name, first.Annotations[annotationDigest])
}

// makeSecret returns the only Secret of a small content.
func (c contents) makeSecret(to content, text []byte) (*corev1.Secret, error) {
	first, parts, err := c.splitContent(to, text)
	if err == nil && len(parts) > 0 {
		err = fmt.Errorf("the content of %s has %d bytes, which is too much for one Secret", to.name, len(text))
	}
	return first, err
}

// change replaces a small content by a function of the current one, which is nil if it does not
// exist.
func (c contents) change(ctx context.Context, to content, change func(now []byte) []byte) error {
	secrets := c.core.CoreV1().Secrets(c.Namespace)
	return c.repeat(ctx, func(ctx context.Context) error {
		is, err := c.getSecret(ctx, to.name)
		if apierrors.IsNotFound(err) {
			want, err := c.makeSecret(to, change(nil))
			if err != nil {
				return err
			}
			_, err = secrets.Create(ctx, want, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return apierrors.NewConflict(corev1.Resource("secrets"), to.name, err)
			}
			return err
		}
		if err != nil {
			return err
		}
		now, err := c.joinParts(ctx, is)
		if err != nil {
			return err
		}
		text := change(now)
		if bytes.Equal(now, text) {
			return nil
		}
		want, err := c.makeSecret(to, text)
		if err != nil {
			return err
		}
		is.Data, is.Annotations = want.Data, want.Annotations
		_, err = secrets.Update(ctx, is, metav1.UpdateOptions{})
		return err
	})
}

// create saves a small content unless it exists, and returns the content that counts.
func (c contents) create(ctx context.Context, to content, text []byte) ([]byte, error) {
	first, err := c.makeSecret(to, text)
	if err != nil {
		return nil, err
	}
	err = c.putSecret(ctx, first, false)
	if apierrors.IsAlreadyExists(err) {
		return c.load(ctx, to.name)
	}
	return text, err
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
	packed, digest := compressor.EncodeAll(text, nil), digestOf(text)
	first = secret(to.name, to.labels, keyCompressed, packed[:min(len(packed), partSize)])
	labels := map[string]string{labelRecord: "part", labelPartOf: labelValue(to.name)}
	for at := partSize; at < len(packed); at += partSize {
		name := partName(to.name, digest, len(parts)+1)
		parts = append(parts, secret(name, labels, keyCompressed, packed[at:min(len(packed), at+partSize)]))
	}
	if len(parts) > maxParts {
		return nil, nil, fmt.Errorf("the content of %s has %d bytes, which is too much to save", to.name, len(text))
	}
	first.Annotations = map[string]string{annotationParts: strconv.Itoa(len(parts)), annotationDigest: digest}
	return first, parts, nil
}

// putSecret creates a Secret. If it exists, it replaces it, or returns AlreadyExists. A Secret with the
// same data is not written again.
func (c contents) putSecret(ctx context.Context, want *corev1.Secret, replace bool) error {
	secrets := c.core.CoreV1().Secrets(c.Namespace)
	tried := false // an earlier call can have created it
	return c.repeat(ctx, func(ctx context.Context) error {
		_, err := secrets.Create(ctx, want, metav1.CreateOptions{})
		again := tried
		tried = true
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		is, getErr := c.getSecret(ctx, want.Name)
		if getErr != nil {
			if apierrors.IsNotFound(getErr) {
				return apierrors.NewConflict(corev1.Resource("secrets"), want.Name, getErr) // removed in the meantime
			}
			return getErr
		}
		same := maps.EqualFunc(is.Data, want.Data, bytes.Equal) && maps.Equal(is.Annotations, want.Annotations)
		switch {
		case same && (replace || again):
			return nil
		case !replace:
			return err
		}
		is.Data, is.Annotations, is.Labels = want.Data, want.Annotations, want.Labels
		is.OwnerReferences = want.OwnerReferences
		_, err = secrets.Update(ctx, is, metav1.UpdateOptions{})
		return err
	})
}

// remove removes a content. A missing one is removed already.
func (c contents) remove(ctx context.Context, name string) error {
	err := c.repeat(ctx, func(ctx context.Context) error {
		if _, err := c.getSecret(ctx, name); err != nil {
			return err
		}
		return c.core.CoreV1().Secrets(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return err
	}
	return c.removeParts(ctx, name, "")
}

// removeParts removes the further Secrets of a content. Secrets with the digest except are kept.
func (c contents) removeParts(ctx context.Context, name, except string) error {
	return c.repeat(ctx, func(ctx context.Context) error {
		list, err := c.core.CoreV1().Secrets(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labelPartOf + "=" + labelValue(name)})
		if err != nil {
			return err
		}
		for i, p := range list.Items {
			if except != "" && p.Name == partName(name, except, partNumber(p.Name)) {
				continue
			}
			err := c.core.CoreV1().Secrets(c.Namespace).Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
}

// list returns the labels of the contents that a selector selects, sorted by name.
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

func (c contents) loadJSON(ctx context.Context, name string, v any) error {
	text, err := c.load(ctx, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return damagedError(fmt.Sprintf("Secret %s/%s", c.Namespace, name), err)
	}
	return nil
}
