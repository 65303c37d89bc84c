package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/layout"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
)

// An extra is an image of a manifest, as stored in the cache.
type extra struct {
	// Index is the unchanged image index of its registry, whose digest is the digest of
	// the image. It is nil for an image with one architecture.
	Index []byte `json:"index,omitempty"`
	// Manifests maps architectures to fetched manifests.
	Manifests map[string]string `json:"manifests"`
}

// extras stores images of manifests in a layout in the cache.
type extras struct {
	dir string
	at  Registry
}

func newExtras(cache string, at Registry) extras {
	return extras{dir: filepath.Join(cache, "downloads", "extra"), at: at}
}

func (x extras) recordPath(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return filepath.Join(x.dir, "refs", hex.EncodeToString(sum[:]))
}

// findKept returns an image in the cache, if it is intact and has the architectures.
func (x extras) findKept(ref string, arches []string) (extra, bool) {
	var e extra
	raw, err := safefile.ReadFile(x.recordPath(ref), bounded.Record)
	if err != nil || json.Unmarshal(raw, &e) != nil {
		return e, false
	}
	d := layout.Dir(x.dir)
	for _, arch := range arches {
		img, err := d.ReadImage(e.Manifests[arch])
		if err != nil {
			return e, false
		}
		m, err := img.Manifest()
		if err != nil {
			return e, false
		}
		for _, b := range append(slices.Clone(m.Layers), m.Config) {
			if d.VerifyBlob(b.Digest.String()) != nil {
				return e, false
			}
		}
	}
	return e, true
}

// getImage puts an image into the cache. It asks the registry for the current meaning of a
// tag; if the registry does not answer, the earlier meaning is used. The meaning of a
// digest does not change.
func (x extras) getImage(ctx context.Context, ref string, arches []string, tell func(source.Progress)) (extra, error) {
	kept, whole := x.findKept(ref, arches)
	if whole && strings.Contains(ref, "@") {
		return kept, nil
	}
	tell(source.Progress{Component: "image " + ref, Phase: source.Fetching, Message: ref})
	e, err := x.fetchImage(ctx, ref, arches)
	switch {
	case err == nil:
		return e, nil
	case whole && ctx.Err() == nil && !isDiagnostic(err):
		tell(source.Progress{Phase: source.Note, Message: fmt.Sprintf("%s: using the image in the cache: %v", ref, err)})
		return kept, nil
	}
	return e, err
}

func (x extras) fetchImage(ctx context.Context, ref string, arches []string) (e extra, err error) {
	parsed, err := fullName(ref)
	if err != nil {
		return e, err
	}
	at := x.at.forHost(parsed.Context().RegistryStr())
	if parsed, err = name.ParseReference(ref, at.nameOptions()...); err != nil {
		return e, err
	}
	opts, err := at.requestOptions(ctx)
	if err != nil {
		return e, err
	}
	desc, err := remote.Get(parsed, opts...)
	if err != nil {
		return e, err
	}
	if desc.MediaType.IsIndex() {
		e.Index = desc.Manifest
	}
	d, err := layout.Create(x.dir)
	if err != nil {
		return e, err
	}
	e.Manifests = map[string]string{}
	for _, arch := range arches {
		img, err := imageForArch(desc, arch)
		if err != nil {
			return e, newProblem(IDExtra,
				"use an image that is available for "+strings.Join(arches, " and ")+", or build the bundle for fewer architectures",
				"image %s is not available for %s: %v", ref, arch, err)
		}
		got, _, err := d.AddImage(img)
		if err != nil {
			return e, err
		}
		e.Manifests[arch] = got.Digest.String()
	}
	return e, x.saveRecord(ref, e)
}

// imageForArch returns an image for an architecture.
func imageForArch(desc *remote.Descriptor, arch string) (v1.Image, error) {
	if !desc.MediaType.IsIndex() {
		img, err := desc.Image()
		if err != nil {
			return nil, err
		}
		conf, err := img.ConfigFile()
		if err == nil && (conf.Architecture != arch || conf.OS != "linux" && conf.OS != "") {
			err = fmt.Errorf("the image is for %s/%s", conf.OS, conf.Architecture)
		}
		return img, err
	}
	index, err := desc.ImageIndex()
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var has []string
	for _, m := range list.Manifests {
		if m.Platform == nil || m.Platform.OS != "linux" {
			continue
		}
		if m.Platform.Architecture == arch {
			return index.Image(m.Digest)
		}
		has = append(has, m.Platform.Architecture)
	}
	return nil, fmt.Errorf("the image is for %s", strings.Join(slices.Compact(slices.Sorted(slices.Values(has))), ", "))
}

func (x extras) saveRecord(ref string, e extra) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file := x.recordPath(ref)
	if err := safefile.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := safefile.CreateTemp(filepath.Dir(file), ".ref-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(raw)
	if err != nil {
		return errors.Join(err, tmp.Close(), safefile.Remove(tmp.Name()))
	}
	if err := safefile.Commit(tmp, file); err != nil {
		return errors.Join(err, safefile.Remove(tmp.Name()))
	}
	return nil
}

// addExtras adds the images of a manifest to the parts of a bundle. All images that are
// not available are reported at once.
func (b *builder) addExtras(ctx context.Context, parts *source.Parts) error {
	x := newExtras(b.Cache, b.Registry)
	var faults diag.List
	for _, ref := range b.Images {
		e, err := x.getImage(ctx, ref, b.request.Arches, b.request.ReportProgress)
		var list diag.List
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &list):
			faults = append(faults, list...)
			continue
		case err != nil:
			if e := explainError(b.Cache, err); isDiagnostic(e) {
				return e
			}
			faults = append(faults, newProblem(IDExtra, registryHint, "image %s cannot be pulled, and it is not in the cache: %v", ref, err)...)
			continue
		}
		for _, arch := range b.request.Arches {
			img, err := layout.Dir(x.dir).ReadImage(e.Manifests[arch])
			if err != nil {
				return err
			}
			parts.Images = append(parts.Images, source.Image{
				Name: extraName(ref), Version: versionOf(ref), Arch: arch, Ref: ref, Image: img, Extra: true, Index: e.Index,
			})
		}
		sum := e.Manifests[b.request.Arches[0]]
		if e.Index != nil {
			h := sha256.Sum256(e.Index)
			sum = "sha256:" + hex.EncodeToString(h[:])
		}
		parts.Origins = append(parts.Origins, source.Origin{For: extraName(ref), Kind: "image", Name: ref, Sum: sum})
	}
	return faults.Err()
}

// hasExtras reports whether a bundle has the images.
func (b *Bundle) hasExtras(refs, arches []string) bool {
	for _, ref := range refs {
		for _, arch := range arches {
			if !slices.ContainsFunc(b.manifest.Images, func(i Image) bool { return i.Extra && i.Ref == ref && i.Arch == arch }) {
				return false
			}
		}
	}
	return true
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// extraName returns a short name that no other image has.
func extraName(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	last, _, _ := strings.Cut(ref[strings.LastIndex(ref, "/")+1:], "@")
	last, _, _ = strings.Cut(last, ":")
	return "extra-" + strings.Trim(notInNames.ReplaceAllString(last, "-"), "-") + "-" + hex.EncodeToString(sum[:4])
}

// TagNames maps image references to their names with a tag. Each name belongs to one image:
// to the one without a digest, or else to the first one.
func TagNames(images []Image) map[string]string {
	tags, has := map[string]string{}, map[string]bool{}
	for _, pinned := range []bool{false, true} {
		for _, i := range images {
			name, _, digest := strings.Cut(i.Ref, "@")
			tagged := strings.Contains(name[strings.LastIndex(name, "/")+1:], ":")
			if digest == pinned && tagged && !has[name] {
				tags[i.Ref], has[name] = name, true
			}
		}
	}
	return tags
}

// CheckTags returns an error for images of manifests that have only a digest: Docker
// cannot load an image without a tag.
func (b *Bundle) CheckTags() error {
	tags := TagNames(b.manifest.Images)
	var faults diag.List
	for _, i := range b.manifest.Images {
		if i.Extra && tags[i.Ref] == "" && i.Arch == b.manifest.Arches[0] {
			faults = append(faults, newProblem(IDUntagged,
				"in the manifest, write a unique tag before the digest, and build the bundle again",
				"the bundle has image %s only by digest, but runtime docker cannot load an image without a tag", i.Ref)...)
		}
	}
	return faults.Err()
}

// versionOf returns the tag of an image, or its digest.
func versionOf(ref string) string {
	tagged, digest, _ := strings.Cut(ref, "@")
	if _, tag, ok := strings.Cut(tagged[strings.LastIndex(tagged, "/"):], ":"); ok {
		return tag
	}
	return digest
}
