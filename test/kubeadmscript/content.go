package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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

// unpackBundle takes the bundle apart into what the script wants: archives of
// programs and of images. It answers their directory; none of this is
// measured.
func (b bench) unpackBundle(ctx context.Context, version string) (string, error) {
	layout := filepath.Join(b.home, "bundle") + "/"
	if _, _, err := b.runSlipway(ctx, "bundle", "build", "--kubernetes", version, "--out", layout); err != nil {
		return "", err
	}
	list, err := exec.CommandContext(ctx, "bin/slipway", "bundle", "inspect", layout, "-o", "json").Output()
	if err != nil {
		return "", err
	}
	var m manifest
	if err := json.Unmarshal(list, &m); err != nil {
		return "", err
	}
	dir := filepath.Join(b.home, "content")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for _, c := range m.Components {
		if c.Arch == runtime.GOARCH && slices.Contains(wanted, c.Name) {
			if err := os.Link(blobPath(layout, c.Digest), filepath.Join(dir, c.Name+".tgz")); err != nil {
				return "", err
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
			return "", err
		}
	}
	for role, names := range images {
		if err := writeImages(layout, m, names, filepath.Join(dir, role+".tar")); err != nil {
			return "", err
		}
	}
	return dir, nil
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
