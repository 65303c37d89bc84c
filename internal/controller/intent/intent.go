// Package intent reads what a user wants of a cluster: the Cluster object with its files. It connects to no
// host.
package intent

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/filesfrom"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// An Intent is the wanted state of a cluster, with its files.
type Intent struct {
	// Cluster has the name and the wanted spec, and no other metadata.
	Cluster *v1alpha1.Cluster
	UID     types.UID
	// Files are the files of spec.filesFrom.
	Files filesfrom.Files
	// Digest is a keyed digest of the wanted spec and the files. It does not change with the settings
	// of the management plane.
	Digest string
	// FileDigests maps the name of each file to a keyed digest of its content.
	FileDigests map[string]string
}

// digestKey is the file with the key of the digests of a cluster.
const digestKey = "intent-digest.key"

// Load returns the intent of a Cluster object. A cluster without a version is checked as one with defaultVersion.
// The error is a diag.List of all problems if the user has to change the object or its files; any other error
// can end.
func Load(
	ctx context.Context, reader client.Reader, files records.ClusterFiles, c *v1alpha1.Cluster, defaultVersion string,
) (*Intent, error) {
	c = &v1alpha1.Cluster{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"}, ObjectMeta: c.ObjectMeta, Spec: c.Spec}
	complete := c.DeepCopy()
	spec.SetDefaults(complete, spec.DefaultOptions{KubernetesVersion: defaultVersion})
	if err := spec.Validate(complete, spec.ValidateOptions{}).Err(); err != nil {
		return nil, err
	}
	return LoadFiles(ctx, reader, files, c)
}

// LoadFiles returns the intent of a Cluster object whose spec can have errors.
func LoadFiles(ctx context.Context, reader client.Reader, files records.ClusterFiles, c *v1alpha1.Cluster) (*Intent, error) {
	resolved, err := filesfrom.Resolve(ctx, objectReader{reader}, c)
	if err != nil {
		return nil, err
	}
	key, err := files.LoadOrCreate(ctx, c.Name, digestKey, func() ([]byte, error) {
		made := make([]byte, filesfrom.MinKeyBytes)
		_, err := rand.Read(made)
		return made, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the key of the digests of cluster %s: %w", c.Name, err)
	}
	out := &Intent{UID: c.UID, Files: resolved.Files, FileDigests: map[string]string{}}
	out.Cluster = &v1alpha1.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Spec: *c.Spec.DeepCopy(),
	}
	for name, content := range resolved.Files {
		if out.FileDigests[name], err = (filesfrom.Files{name: content}).Digest(key, c.UID); err != nil {
			return nil, err
		}
	}
	out.Digest, err = out.computeDigest(key)
	return out, err
}

// computeDigest returns the digest of the wanted spec and the digests of the files.
func (i *Intent) computeDigest(key []byte) (string, error) {
	wanted := i.Cluster.Spec.DeepCopy()
	wanted.FilesFrom, wanted.Approval, wanted.Paused = nil, "", false
	wanted.DeletionPolicy, wanted.DriftPolicy, wanted.Maintenance, wanted.RetryPolicy = "", "", v1alpha1.Maintenance{}, nil
	text, err := json.Marshal(struct {
		Spec  *v1alpha1.ClusterSpec
		Files map[string]string
		UID   types.UID
	}{wanted, i.FileDigests, i.UID})
	if err != nil {
		return "", fmt.Errorf("computing the digest of cluster %s: %w", i.Cluster.Name, err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("slipway.dev/intent/v1\x00"))
	mac.Write(text)
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)), nil
}

// An objectReader reads Secrets and ConfigMaps of an API.
type objectReader struct{ client.Reader }

// ReadSecret implements filesfrom.Reader.
func (r objectReader) ReadSecret(ctx context.Context, namespace, name string) (filesfrom.Object, error) {
	var is corev1.Secret
	err := r.read(ctx, filesfrom.Secret, namespace, name, &is)
	return filesfrom.Object{Data: is.Data, ResourceVersion: is.ResourceVersion}, err
}

// ReadConfigMap implements filesfrom.Reader.
func (r objectReader) ReadConfigMap(ctx context.Context, namespace, name string) (filesfrom.Object, error) {
	var is corev1.ConfigMap
	err := r.read(ctx, filesfrom.ConfigMap, namespace, name, &is)
	data := map[string][]byte{}
	for key, text := range is.Data {
		data[key] = []byte(text)
	}
	for key, content := range is.BinaryData {
		data[key] = content
	}
	return filesfrom.Object{Data: data, ResourceVersion: is.ResourceVersion}, err
}

func (r objectReader) read(ctx context.Context, kind filesfrom.Kind, namespace, name string, into client.Object) error {
	err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return &filesfrom.NotFoundError{Kind: kind, Namespace: namespace, Name: name}
	}
	return err
}
