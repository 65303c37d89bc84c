package addonsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/spec"
)

// maxManifest limits a file of manifests; the largest known ones have about 5 MB.
const maxManifest = 64 << 20

// readManifests reads the manifests of an add-on, in their order.
func (w *loadRun) readManifests(ctx context.Context, a v1alpha1.Addon, out *Addon) error {
	for i, name := range a.Manifests {
		at := fmt.Sprintf(".manifests[%d]", i)
		if spec.IsURL(name) {
			address, pin := spec.SplitPinnedURL(name)
			text, err := w.download(ctx, at, address, pin, fresh)
			if err != nil {
				return err
			}
			out.Sources = append(out.Sources, address+" "+digestOf(text))
			if err := w.decodeObjects(at, address, text, out); err != nil {
				return err
			}
			continue
		}
		files, err := w.manifestFiles(at, name)
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := w.readLocal(at, file)
			if err != nil {
				return err
			}
			if err := w.decodeObjects(at, file, text, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// manifestFiles returns a file, or the manifests in a directory, sorted by name.
func (w *loadRun) manifestFiles(at, name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, w.refuseAddon(IDUnusable, at, "the file or directory cannot be read: "+fileErrorText(err),
			"check the path, which is relative to the cluster file")
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, w.refuseAddon(IDUnusable, at, "the file or directory cannot be read: "+fileErrorText(err), "")
	}
	var files []string
	for _, e := range entries {
		switch ext := filepath.Ext(e.Name()); {
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
		case strings.HasPrefix(e.Name(), "kustomization."):
			return nil, w.refuseAddon(IDUnusable, at, name+" is a kustomization, which Slipway does not build",
				"render it, and use the resulting file instead: kubectl kustomize "+name+" > FILE")
		case slices.Contains([]string{".yaml", ".yml", ".json"}, ext):
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, w.refuseAddon(IDUnusable, at, "no manifest was found in "+name,
			"name the files *.yaml, *.yml or *.json; subdirectories are not read")
	}
	return files, nil
}

func (w *loadRun) readLocal(at, file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(file + ": not a regular file")
	}
	if err == nil && info.Size() > maxManifest {
		err = fmt.Errorf("%s: larger than %d MiB", file, maxManifest>>20)
	}
	var text []byte
	if err == nil {
		text, err = bounded.ReadArgument(file, bounded.Document)
	}
	if err != nil {
		return nil, w.refuseAddon(IDUnusable, at, "the file cannot be read: "+fileErrorText(err), "")
	}
	return text, nil
}

// decodeObjects appends the objects of a text; name is the name of the text for people.
func (w *loadRun) decodeObjects(at, name string, text []byte, out *Addon) error {
	objects, err := kube.DecodeObjects(text)
	if err != nil {
		return w.refuseAddon(IDUnusable, at, name+": "+err.Error(), "check the file: kubectl apply --dry-run=client -f FILE")
	}
	for _, o := range objects {
		if o.GroupVersionKind().Group == "kustomize.config.k8s.io" {
			return w.refuseAddon(IDUnusable, at, name+" is a kustomization, which Slipway does not build",
				"render it, and use the resulting file instead: kubectl kustomize DIRECTORY > FILE")
		}
		removeServerFields(o)
	}
	out.Objects = append(out.Objects, objects...)
	return nil
}

// removeServerFields removes fields that only a server writes: manifests that were read from a
// cluster have them.
func removeServerFields(o *unstructured.Unstructured) {
	delete(o.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
}

// fileErrorText returns an error of the file system with the name of the file.
func fileErrorText(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Path + ": " + at.Err.Error()
	}
	return err.Error()
}
