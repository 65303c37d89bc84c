//go:build linux

package run

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// fakeCtr takes image layouts as containerd's client does.
func fakeCtr(w *world, args []string) (string, error) {
	if len(args) < 4 || args[0] != "--connect-timeout=5s" || args[1] != "--namespace=k8s.io" || args[2] != "images" {
		return "", fmt.Errorf("unexpected: ctr %q", args)
	}
	switch args = args[3:]; {
	case slices.Equal(args, []string{"ls"}):
		out := "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
		for ref, img := range w.Images {
			labels := "-"
			if img.Pinned {
				labels = "a=b,io.cri-containerd.pinned=pinned"
			}
			out += fmt.Sprintf("%s application/x %s 1.0 MiB linux/amd64 %s\n", ref, img.Digest, labels)
		}
		return out, nil
	case len(args) == 3 && args[0] == "label" && args[2] == "io.cri-containerd.pinned=pinned":
		img := w.Images[args[1]]
		img.Pinned = true
		w.Images[args[1]] = img
		return "", nil
	case slices.Equal(args, []string{"import", "--all-platforms", "--label=io.cri-containerd.pinned=pinned", "-"}):
		return "", takeLayout(w, os.Stdin)
	}
	return "", fmt.Errorf("unexpected: ctr %q", args)
}

func takeLayout(w *world, r io.Reader) error {
	t := tar.NewReader(r)
	have := map[string]bool{}
	var index struct {
		Manifests []imageDescriptor `json:"manifests"`
	}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		have[strings.Replace(strings.TrimPrefix(h.Name, "blobs/"), "/", ":", 1)] = true
		if h.Name == "index.json" {
			if err := json.NewDecoder(t).Decode(&index); err != nil {
				return err
			}
		}
	}
	if !have["oci-layout"] {
		return errors.New("not an image layout")
	}
	for _, m := range index.Manifests {
		if !have[m.Digest] {
			return fmt.Errorf("the manifest %s is missing", m.Digest)
		}
		w.Images[m.Annotations["io.containerd.image.name"]] = fakeImage{Digest: m.Digest, Pinned: true}
	}
	return nil
}
