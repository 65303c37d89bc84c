package bundle

import (
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

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bounded"
)

// A Key is the public half of a pair that signs bundles. The zero value is
// none.
type Key struct{ public string }

// A SigningKey is the private half.
type SigningKey struct{ private ed25519.PrivateKey }

const (
	keyPrefix = "ed25519:"
	// annotationSignature and a key's name carry a signature in what
	// index.json says of the bundle's index: so it travels with a directory
	// or a file, and changes no digest.
	annotationSignature = "dev.slipway.signature."
	// mediaTypeSignature is the type of what carries signatures in a
	// registry, where it refers to the bundle's index.
	mediaTypeSignature types.MediaType = "application/vnd.slipway.signature.v1+json"
	// maxSignatures bounds what is read from a registry.
	maxSignatures = 64
)

// statement is what is signed. The digest covers every byte of the bundle.
func statement(digest string) []byte { return []byte("slipway bundle v1\n" + digest + "\n") }

// ParseKey reads a public key: "ed25519:" and its 32 bytes in base64, or PEM.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	if raw, ok := strings.CutPrefix(text, keyPrefix); ok {
		data, err := base64.StdEncoding.Strict().DecodeString(raw)
		if err != nil || len(data) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("what follows %s is not a key of %d bytes in base64", keyPrefix, ed25519.PublicKeySize)
		}
		return Key{string(data)}, nil
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return Key{}, fmt.Errorf("it begins neither with %s nor as PEM does", keyPrefix)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if public, ok := parsed.(ed25519.PublicKey); ok {
		return Key{string(public)}, nil
	}
	return Key{}, errors.Join(errors.New("it is no public key of type Ed25519"), err)
}

// ReadKey reads a public key from a file, or as it stands.
func ReadKey(arg string) (Key, error) {
	text := arg
	if !strings.HasPrefix(arg, keyPrefix) {
		data, err := bounded.ReadArgument(arg, bounded.Argument)
		if err != nil {
			return Key{}, problem(IDKey, keyHint, "the public key cannot be read: %v", err)
		}
		text = string(data)
	}
	k, err := ParseKey(text)
	if err != nil {
		return Key{}, problem(IDKey, keyHint, "%s is no public key of bundles: %v", arg, err)
	}
	return k, nil
}

const keyHint = "name the file NAME.pub that `slipway bundle keygen NAME` made, or the line in it"

// String is the key in one line, as cluster files have it.
func (k Key) String() string {
	if k.public == "" {
		return ""
	}
	return keyPrefix + base64.StdEncoding.EncodeToString([]byte(k.public))
}

// Name is short and made of the key: 16 hexadecimal digits.
func (k Key) Name() string {
	sum := sha256.Sum256([]byte(k.public))
	return hex.EncodeToString(sum[:8])
}

// Keygen makes a pair of keys: in the file prefix.key, which only its owner
// can read, and prefix.pub. Neither may be there already.
func Keygen(prefix string) (Key, error) {
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		return Key{}, problem(IDKey, "name the pair: `slipway bundle keygen release` writes release.key and release.pub", "%q is no name for a pair of keys", prefix)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Key{}, err
	}
	k := Key{string(public)}
	if _, err := os.Lstat(prefix + ".pub"); err == nil {
		return Key{}, problem(IDKeyThere, "name another, or move it away", "%s.pub is there already", prefix)
	}
	for _, f := range []struct {
		path string
		mode os.FileMode
		data []byte
	}{
		{prefix + ".key", 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
		{prefix + ".pub", 0o644, []byte(k.String() + "\n")},
	} {
		if err := writeNew(f.path, f.mode, f.data); errors.Is(err, os.ErrExist) {
			return Key{}, problem(IDKeyThere, "name another, or move it away", "%s is there already", f.path)
		} else if err != nil {
			if f.path == prefix+".pub" { // half a pair is none
				err = errors.Join(err, os.Remove(prefix+".key"))
			}
			return Key{}, problem(IDKey, "name the pair in a directory that is there and can be written to", "the keys cannot be written: %v", err)
		}
	}
	return k, nil
}

// writeNew writes a file that is not there yet, whole or not at all.
func writeNew(path string, mode os.FileMode, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// ReadSigningKey reads a private key: PEM of PKCS #8, as Keygen writes it, and
// as openssl does.
func ReadSigningKey(path string) (SigningKey, error) {
	const hint = "name the file NAME.key that `slipway bundle keygen NAME` made"
	data, err := bounded.ReadArgument(path, bounded.Argument)
	if err != nil {
		return SigningKey{}, problem(IDKey, hint, "the private key cannot be read: %v", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return SigningKey{}, problem(IDKey, hint, "%s is no PEM file", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return SigningKey{}, problem(IDKey, hint, "%s holds no private key of type Ed25519", path)
	}
	return SigningKey{private}, nil
}

// Public is the other half.
func (k SigningKey) Public() Key {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return Key{string(public)}
}

// Sign signs a bundle where it is: a directory, a .tar.zst file, which is
// written again, or a reference in a registry. Every byte is compared with its
// digest first. The digest stays what it was.
func Sign(ctx context.Context, path, cache string, key SigningKey, at Registry) (*Bundle, error) {
	b, err := Open(ctx, path, cache, at)
	if err != nil {
		return nil, err
	}
	if err := b.Verify(ctx); err != nil {
		return nil, err
	}
	signature := map[string]string{
		annotationSignature + key.Public().Name(): base64.StdEncoding.EncodeToString(ed25519.Sign(key.private, statement(b.Digest()))),
	}
	fi, err := os.Stat(path)
	if err == nil && fi.IsDir() {
		return b, explain(path, b.annotate(signature))
	}
	root := b.root
	root.Annotations = map[string]string{}
	maps.Copy(root.Annotations, b.root.Annotations)
	maps.Copy(root.Annotations, signature)
	signed := *b
	signed.root = root
	if err == nil {
		return &signed, explain(path, writeWhole(path, func(w io.Writer) error { return b.dir.PackAs(ctx, w, root, nil) }))
	}
	ref, at, err := named(path, at)
	if err != nil {
		return nil, err
	}
	opts, err := at.options(ctx)
	if err != nil {
		return nil, err
	}
	if err := signed.pushSignatures(ref, opts); err != nil {
		return nil, problem(IDPush, registryHint, "pushing the signature of %s: %v", ref, err)
	}
	return &signed, nil
}

// SignedBy are the names of the keys whose signatures the bundle carries,
// whether they are good or not.
func (b *Bundle) SignedBy() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(b.root.Annotations)) {
		if name, ok := strings.CutPrefix(k, annotationSignature); ok {
			out = append(out, name)
		}
	}
	return out
}

// CheckSigned says whether one of keys has signed the bundle, if there are
// any. The signature is of the digest: whether the content is what that says
// is for Verify, and for the hosts, which verify what they get. The error is a
// diag.List.
func (b *Bundle) CheckSigned(keys []Key) error {
	return checkSigned(keys, b.root, "the bundle of "+b.manifest.Kubernetes)
}

func checkSigned(keys []Key, root v1.Descriptor, what string) error {
	if len(keys) == 0 {
		return nil
	}
	wrong := false
	var names []string
	for _, k := range keys {
		names = append(names, k.Name())
		text, ok := root.Annotations[annotationSignature+k.Name()]
		if !ok {
			continue
		}
		signature, err := base64.StdEncoding.DecodeString(text)
		if err == nil && ed25519.Verify(ed25519.PublicKey(k.public), statement(root.Digest.String()), signature) {
			return nil
		}
		wrong = true
	}
	if wrong {
		return problem(IDSignature, "get the bundle again from whom you trust; do not use this one", "%s (%s) carries a signature of %s that is not of this content", what, root.Digest, strings.Join(names, " or "))
	}
	return problem(IDUnsigned, "get one that is signed; who has the private key signs it with `slipway bundle sign BUNDLE --key NAME.key`", "%s (%s) is not signed by %s", what, root.Digest, strings.Join(names, " or "))
}

// pushSignatures puts the bundle's signatures into a registry that has the
// bundle.
func (b *Bundle) pushSignatures(ref name.Reference, opts []remote.Option) error {
	for _, key := range b.SignedBy() {
		note := annotationSignature + key
		subject := v1.Descriptor{MediaType: types.OCIImageIndex, Digest: b.root.Digest, Size: b.root.Size}
		typed := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mediaTypeSignature)
		// The subject last: what is changed after it drops it.
		signature, ok := mutate.Subject(mutate.Annotations(typed, map[string]string{note: b.root.Annotations[note]}), subject).(v1.Image)
		if !ok {
			return errors.New("a signature is no manifest")
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

// signatures are what a registry has of them for a bundle.
func signatures(ref name.Reference, digest v1.Hash, opts []remote.Option) (map[string]string, error) {
	ix, err := remote.Referrers(ref.Context().Digest(digest.String()), opts...)
	if err != nil {
		return nil, fmt.Errorf("asking for signatures: %w", err)
	}
	im, err := ix.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("asking for signatures: %w", err)
	}
	out := map[string]string{}
	for _, desc := range im.Manifests {
		if desc.ArtifactType != string(mediaTypeSignature) || len(out) >= maxSignatures {
			continue
		}
		img, err := remote.Image(ref.Context().Digest(desc.Digest.String()), opts...)
		if err != nil {
			return nil, fmt.Errorf("reading a signature: %w", err)
		}
		m, err := img.Manifest()
		if err != nil {
			return nil, fmt.Errorf("reading a signature: %w", err)
		}
		for k, v := range m.Annotations {
			if strings.HasPrefix(k, annotationSignature) && len(v) <= base64.StdEncoding.EncodedLen(ed25519.SignatureSize) {
				out[k] = v
			}
		}
	}
	return out, nil
}
