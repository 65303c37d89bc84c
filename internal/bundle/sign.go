package bundle

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/safefile"
)

// A Key is a public key for signatures of bundles. The zero value is not a valid key.
type Key struct {
	public string
	since  time.Time
}

// AcceptedSince returns the key for checks that accept only signatures from this time or later,
// so that an older bundle does not pass as the newest.
func (k Key) AcceptedSince(t time.Time) Key {
	k.since = t
	return k
}

// A SigningKey is a private key for signatures.
type SigningKey struct{ private ed25519.PrivateKey }

const (
	keyPrefix = "ed25519:"
	// mediaTypeSignature is the type of manifests with signatures in a registry, which
	// refer to the index of the bundle.
	mediaTypeSignature types.MediaType = "application/vnd.slipway.signature.v1+json"
)

// ParseKey reads a public key: "ed25519:" and its 32 bytes in base64, or PEM.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	if raw, ok := strings.CutPrefix(text, keyPrefix); ok {
		data, err := base64.StdEncoding.Strict().DecodeString(raw)
		if err != nil || len(data) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("the text after %s is not a key of %d bytes in base64", keyPrefix, ed25519.PublicKeySize)
		}
		return Key{public: string(data)}, nil
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return Key{}, fmt.Errorf("it begins neither with %s nor with a PEM header", keyPrefix)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if public, ok := parsed.(ed25519.PublicKey); ok {
		return Key{public: string(public)}, nil
	}
	return Key{}, errors.Join(errors.New("it is not an Ed25519 public key"), err)
}

// ReadKey reads a public key from a file, or from the argument itself.
func ReadKey(arg string) (Key, error) {
	text := arg
	if !strings.HasPrefix(arg, keyPrefix) {
		data, err := bounded.ReadArgument(arg, bounded.Argument)
		if err != nil {
			return Key{}, newProblem(IDKey, keyHint, "the public key cannot be read: %v", err)
		}
		text = string(data)
	}
	k, err := ParseKey(text)
	if err != nil {
		return Key{}, newProblem(IDKey, keyHint, "%s is not a public key for bundles: %v", arg, err)
	}
	return k, nil
}

const keyHint = "give the file NAME.pub that `slipway bundle keygen NAME` created, or the line in this file"

// String returns the key in one line, as in cluster files.
func (k Key) String() string {
	if k.public == "" {
		return ""
	}
	return keyPrefix + base64.StdEncoding.EncodeToString([]byte(k.public))
}

// Name returns a short name derived from the key: 16 hexadecimal digits.
func (k Key) Name() string {
	sum := sha256.Sum256([]byte(k.public))
	return hex.EncodeToString(sum[:8])
}

// GenerateKey creates a key pair: the file prefix.key, which only its owner can read, and the
// file prefix.pub. Neither may exist already.
func GenerateKey(prefix string) (Key, error) {
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		return Key{}, newProblem(IDKey,
			"choose a name for the key pair: `slipway bundle keygen release` writes release.key and release.pub",
			"%q is not a valid name for a key pair", prefix)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Key{}, err
	}
	k := Key{public: string(public)}
	if _, err := os.Lstat(prefix + ".pub"); err == nil {
		return Key{}, newProblem(IDKeyThere, "choose another name, or move the file away", "%s.pub already exists", prefix)
	}
	for _, f := range []struct {
		path string
		mode os.FileMode
		data []byte
	}{
		{prefix + ".key", 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
		{prefix + ".pub", 0o644, []byte(k.String() + "\n")},
	} {
		if err := writeNewFile(f.path, f.mode, f.data); errors.Is(err, os.ErrExist) {
			return Key{}, newProblem(IDKeyThere, "choose another name, or move the file away", "%s already exists", f.path)
		} else if err != nil {
			if f.path == prefix+".pub" { // half a pair is useless
				err = errors.Join(err, safefile.Remove(prefix+".key"))
			}
			return Key{}, newProblem(IDKey, "choose a name in an existing, writable directory", "the keys cannot be written: %v", err)
		}
	}
	return k, nil
}

// writeNewFile writes a new file, completely or not at all.
func writeNewFile(path string, mode os.FileMode, data []byte) error {
	f, err := safefile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, safefile.Remove(path))
	}
	return nil
}

// ReadSigningKey reads a private key: PEM with PKCS #8, as this package and openssl write
// it.
func ReadSigningKey(path string) (SigningKey, error) {
	const hint = "give the file NAME.key that `slipway bundle keygen NAME` created"
	data, err := bounded.ReadArgument(path, bounded.Argument)
	if err != nil {
		return SigningKey{}, newProblem(IDKey, hint, "the private key cannot be read: %v", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return SigningKey{}, newProblem(IDKey, hint, "%s is not a PEM file", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return SigningKey{}, newProblem(IDKey, hint, "%s has no Ed25519 private key", path)
	}
	return SigningKey{private}, nil
}

// Public returns the public key.
func (k SigningKey) Public() Key {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return Key{public: string(public)}
}

// Sign signs a bundle in place: a directory, a .tar.zst file, which is written again, or
// a reference in a registry. Every byte is compared with its digest first. The digest
// does not change. The signature has the current time.
func Sign(ctx context.Context, path, cache string, key SigningKey, at Registry, now time.Time) (*Bundle, error) {
	b, err := Open(ctx, path, cache, at)
	if err != nil {
		return nil, err
	}
	if err := b.Verify(ctx); err != nil {
		return nil, err
	}
	signed := map[string]string{annotationSignature + key.Public().Name(): newSignature(key.private, b.root.Digest, b.manifest, now).String()}
	own := []Key{key.Public()}
	fi, err := os.Stat(path)
	if err == nil && fi.IsDir() {
		b.dir = layout.Dir(path) // some links that are followed to read are not followed to write
		return b, explainError(path, b.addAnnotations(signed, own))
	}
	return b, b.writeSignature(ctx, path, at, mergeAnnotations(b.root.Digest, b.root.Annotations, signed, own))
}

// writeSignature writes new annotations to the source of the bundle: a file or a registry.
func (b *Bundle) writeSignature(ctx context.Context, path string, at Registry, notes map[string]string) error {
	root := b.root
	root.Annotations = notes
	b.root = root
	if _, err := os.Stat(path); err == nil {
		return explainError(path, writeAtomically(path, func(w io.Writer) error { return b.dir.PackAs(ctx, w, root, nil) }))
	}
	ref, at, err := parseUserReference(path, at)
	if err != nil {
		return err
	}
	opts, err := at.requestOptions(ctx)
	if err != nil {
		return err
	}
	if err := b.pushSignatures(ref, opts); err != nil {
		return newProblem(IDPush, registryHint, "pushing the signature of %s: %v", ref, err)
	}
	return nil
}

// SignedBy returns the names of the keys whose signatures the bundle has, whether they
// are valid or not.
func (b *Bundle) SignedBy() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(b.root.Annotations)) {
		if name, ok := strings.CutPrefix(k, annotationSignature); ok {
			out = append(out, name)
		}
	}
	return out
}

// CheckSigned returns an error for a bundle that none of keys has signed, if there are
// any. The signature covers the digest. Verify, and the hosts that receive content, check
// whether the content matches the digest. The error is a diag.List.
func (b *Bundle) CheckSigned(keys []Key) error {
	return checkSigned(keys, b.root, &b.manifest, "the bundle of "+b.manifest.Kubernetes)
}

// checkSigned implements CheckSigned; m is nil if only the digest is known.
func checkSigned(keys []Key, root v1.Descriptor, m *Manifest, what string) error {
	if len(keys) == 0 {
		return nil
	}
	var wrong bool
	var newest, since time.Time
	var names []string
	for _, k := range keys {
		names = append(names, k.Name())
		for _, s := range parseSignatures(root.Annotations[annotationSignature+k.Name()]) {
			switch made := s.signedAt(); {
			case !s.isSignedBy(k, root.Digest), m != nil && (s.kubernetes != m.Kubernetes || s.arches != strings.Join(m.Arches, ",")):
				wrong = true
			case made.Before(k.since):
				since = k.since
				if made.After(newest) {
					newest = made
				}
			default:
				return nil
			}
		}
	}
	by := strings.Join(names, " or ")
	switch {
	case !newest.IsZero():
		return newProblem(IDOldSignature, "get a newer bundle, or use an earlier time with --not-older-than",
			"%s (%s) was signed by %s at %s, before %s",
			what, root.Digest, by, newest.Format(time.RFC3339), since.Format(time.RFC3339))
	case wrong:
		return newProblem(IDSignature, "get the bundle again from a trusted source, and do not use this one",
			"%s (%s) has a signature of %s that does not match its content", what, root.Digest, by)
	}
	return newProblem(IDUnsigned,
		"get a signed bundle; the owner of the private key can sign this one with `slipway bundle sign BUNDLE --key NAME.key`",
		"%s (%s) is not signed by %s", what, root.Digest, by)
}

// pushSignatures pushes the signatures of a bundle to a registry that has the bundle.
func (b *Bundle) pushSignatures(ref name.Reference, opts []remote.Option) error {
	for _, key := range b.SignedBy() {
		note := annotationSignature + key
		subject := v1.Descriptor{MediaType: types.OCIImageIndex, Digest: b.root.Digest, Size: b.root.Size}
		typed := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mediaTypeSignature)
		// Set the subject last: a later change drops it.
		signature, ok := mutate.Subject(mutate.Annotations(typed, map[string]string{note: b.root.Annotations[note]}), subject).(v1.Image)
		if !ok {
			return errors.New("the signature is not a manifest")
		}
		digest, err := signature.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(ref.Context().Digest(digest.String()), signature, opts...); err != nil {
			return err
		}
	}
	return nil
}

// readSignatures returns the signatures of a bundle in a registry, as annotations. With keys,
// it reads more to find their signatures. Invalid signatures are skipped, because anyone
// who can push can add them.
func readSignatures(ref name.Reference, digest v1.Hash, opts []remote.Option, keys []Key) (map[string]string, error) {
	ix, err := remote.Referrers(ref.Context().Digest(digest.String()), opts...)
	if err != nil {
		return nil, fmt.Errorf("listing signatures: %w", err)
	}
	im, err := ix.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("listing signatures: %w", err)
	}
	out, left := map[string]string{}, maxSigners
	if len(keys) > 0 {
		left = maxReferrers
	}
	var failed error
	for _, desc := range im.Manifests {
		if desc.ArtifactType != string(mediaTypeSignature) {
			continue
		}
		if left--; left < 0 {
			break
		}
		img, err := remote.Image(ref.Context().Digest(desc.Digest.String()), opts...)
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("reading a signature: %w", err))
			continue
		}
		m, err := img.Manifest()
		if err != nil {
			continue
		}
		found := map[string]string{}
		for k, v := range m.Annotations {
			if strings.HasPrefix(k, annotationSignature) {
				found[k] = v
			}
		}
		out = mergeAnnotations(digest, out, found, keys)
	}
	if len(out) == 0 {
		return nil, failed
	}
	return out, nil
}
