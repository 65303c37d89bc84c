// Package kubeadmscript sets up clusters with kubeadm and a shell script, from the content of a bundle: what a person has
// who does not use Slipway.
package kubeadmscript

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A blob names content in the bundle.
type blob struct {
	MediaType   string            `json:"mediaType,omitempty"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// manifest is the part of what a bundle holds that the script needs.
type manifest struct {
	Kubernetes string
	Components []struct {
		Name, Arch, Digest string
	}
	Images []struct {
		Name, Arch, Ref, MediaType string
		Manifest                   blob
		Blobs                      []blob
	}
}

// wanted are the components without which kubeadm makes no cluster.
var wanted = []string{"containerd", "cni-plugins", "kubernetes"}

// images lists the images that hosts need, by the name of the script's archive.
var images = map[string][]string{
	"control-plane": {"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns", "pause", "flannel"},
	"worker":        {"kube-proxy", "coredns", "pause", "flannel"},
}

// Unpack makes from a bundle what the script wants: archives of programs and of images. layout is the directory of the
// bundle, inspected the output of 'slipway bundle inspect -o json', and dir a directory that does not exist yet.
func Unpack(layout string, inspected []byte, dir string) error {
	var m manifest
	if err := json.Unmarshal(inspected, &m); err != nil {
		return fmt.Errorf("reading the content of the bundle: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, c := range m.Components {
		if c.Arch == runtime.GOARCH && slices.Contains(wanted, c.Name) {
			if err := os.Link(blobPath(layout, c.Digest), filepath.Join(dir, c.Name+".tgz")); err != nil {
				return err
			}
		}
	}
	texts := map[string]string{"version": m.Kubernetes}
	for _, i := range m.Images {
		if i.Arch == runtime.GOARCH && (i.Name == "pause" || i.Name == "flannel") {
			texts[i.Name] = i.Ref
		}
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	for role, names := range images {
		if err := writeImages(layout, m, names, filepath.Join(dir, role+".tar")); err != nil {
			return err
		}
	}
	return nil
}

func blobPath(layout, digest string) string {
	return filepath.Join(layout, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// writeImages writes an OCI layout of the images named, as `ctr images import` reads
// it.
func writeImages(layout string, m manifest, names []string, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	tw := tar.NewWriter(f)
	var index struct {
		SchemaVersion int    `json:"schemaVersion"`
		Manifests     []blob `json:"manifests"`
	}
	index.SchemaVersion = 2
	written := map[string]bool{}
	for _, i := range m.Images {
		if i.Arch != runtime.GOARCH || !slices.Contains(names, i.Name) {
			continue
		}
		i.Manifest.MediaType = i.MediaType
		i.Manifest.Annotations = map[string]string{"io.containerd.image.name": i.Ref}
		index.Manifests = append(index.Manifests, i.Manifest)
		for _, b := range append(i.Blobs, i.Manifest) {
			if written[b.Digest] {
				continue
			}
			written[b.Digest] = true
			if err := copyBlob(tw, layout, b); err != nil {
				return err
			}
		}
	}
	list, err := json.Marshal(index)
	if err != nil {
		return err
	}
	for name, data := range map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": string(list)} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := io.WriteString(tw, data); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), f.Close())
}

func copyBlob(tw *tar.Writer, layout string, b blob) error {
	f, err := os.Open(blobPath(layout, b.Digest))
	if err != nil {
		return err
	}
	defer f.Close()
	name := "blobs/sha256/" + strings.TrimPrefix(b.Digest, "sha256:")
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: b.Size}); err != nil {
		return err
	}
	if _, err := io.Copy(tw, f); err != nil {
		return fmt.Errorf("copying %s: %w", name, err)
	}
	return nil
}

// Args returns the arguments of the script for the machines of a cluster file.
func Args(file, content string, controlPlanes int) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cluster struct {
		Spec struct {
			Hosts []struct{ Address string }
			SSH   struct{ PrivateKeyFile string }
		}
	}
	if err := yaml.Unmarshal(data, &cluster); err != nil {
		return nil, err
	}
	args := []string{content, cluster.Spec.SSH.PrivateKeyFile, strconv.Itoa(controlPlanes)}
	for _, h := range cluster.Spec.Hosts {
		args = append(args, h.Address)
	}
	return args, nil
}
