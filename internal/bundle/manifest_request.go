package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// The type of a bundle manifest.
const (
	ManifestRequestVersion = "slipway.dev/v1alpha1"
	ManifestRequestKind    = "BundleManifest"
)

// A ManifestRequest is a bundle manifest: the wanted content of a bundle.
type ManifestRequest struct {
	APIVersion string `yaml:"apiVersion" json:"apiVersion"`
	Kind       string `yaml:"kind" json:"kind"`
	// Kubernetes is the version: "v1.37.1".
	Kubernetes string   `yaml:"kubernetes" json:"kubernetes"`
	Arches     []string `yaml:"arches,omitempty" json:"arches,omitempty"`
	// Runtime is containerd (also "") or docker, which is added to it.
	Runtime string `yaml:"runtime,omitempty" json:"runtime,omitempty"`
	// Components are versions that replace versions of the release catalogue.
	Components release.Components `yaml:"components,omitempty" json:"components,omitzero"`
	// Images lists additional images by reference, with or without a digest.
	Images []string `yaml:"images,omitempty" json:"images,omitempty"`
}

// NewWanted returns the manifest of a release.
func NewWanted(r release.Release, arches []string) ManifestRequest {
	return ManifestRequest{
		APIVersion: ManifestRequestVersion, Kind: ManifestRequestKind, Kubernetes: r.Kubernetes,
		Arches: arches, Components: r.Components,
	}
}

// Encode returns the file.
func (w ManifestRequest) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(w), e.Close())
	return b.Bytes(), err
}

// ReadWanted reads a manifest file. The error is a diag.List of all problems.
func ReadWanted(file string) (ManifestRequest, error) {
	data, err := bounded.ReadArgument(file, bounded.Argument)
	if err != nil {
		return ManifestRequest{}, newProblem(IDWanted, "run `slipway create manifest` to write one", "the manifest cannot be read: %v", err)
	}
	return ParseWanted(file, data)
}

// ParseWanted parses the text of a manifest file.
func ParseWanted(file string, data []byte) (ManifestRequest, error) {
	var w ManifestRequest
	const form = "see docs/guide/bundle.md for the format, or run `slipway create manifest` to write one"
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var misread *yaml.TypeError
	if err := d.Decode(&w); err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &misread) {
		return w, newProblem(IDWanted, form, "%s is not a bundle manifest: %s", file, strings.ReplaceAll(err.Error(), "\n", ";"))
	}
	if w.APIVersion != ManifestRequestVersion || w.Kind != ManifestRequestKind {
		return w, newProblem(IDWanted, form,
			"%s is not a bundle manifest: it has kind %q and apiVersion %q, expected kind %q and apiVersion %q",
			file, w.Kind, w.APIVersion, ManifestRequestKind, ManifestRequestVersion)
	}
	list := parserErrors(file, misread)
	if w.Kubernetes == "" && misread == nil {
		list = append(list, newProblem(IDWanted, "write kubernetes: v1.37.1, or another version", "%s has no Kubernetes version", file)...)
	}
	if w.Runtime != "" && w.Runtime != "containerd" && w.Runtime != "docker" {
		list = append(list, newProblem(IDWanted, "use containerd or docker", "%s has an unknown runtime %q", file, w.Runtime)...)
	}
	for _, ref := range w.Images {
		if _, err := fullName(ref); err != nil {
			list = append(list,
				newProblem(IDWanted, "write the image with its registry, and with a tag or a digest: docker.io/library/nginx:1.29",
					"%s: %v", file, err)...)
		}
	}
	for i, ref := range w.Images {
		if slices.Contains(w.Images[:i], ref) {
			list = append(list, newProblem(IDWanted, "keep one of the two", "%s lists the image %s more than once", file, ref)...)
		}
	}
	return w, list.Err()
}

// inLine matches the place in an error of the parser.
var inLine = regexp.MustCompile(`^line (\d+): (.*)$`)

// parserErrors returns the errors of the parser, with their places.
func parserErrors(file string, err *yaml.TypeError) (list diag.List) {
	if err == nil {
		return nil
	}
	for _, text := range err.Errors {
		d := diag.Diagnostic{ID: IDWanted, Severity: diag.Error, File: file, Message: text, Hint: "see docs/guide/bundle.md for the format"}
		if m := inLine.FindStringSubmatch(text); m != nil {
			d.Line, _ = strconv.Atoi(m[1]) // they are digits
			d.Column, d.Message = 1, m[2]
		}
		d.Message, _, _ = strings.Cut(d.Message, " in type ")
		d.Message, _, _ = strings.Cut(d.Message, " into ")
		list = append(list, d)
	}
	return list
}

// fullName parses a full image reference, as containerd uses it.
func fullName(ref string) (name.Reference, error) {
	tagged, _, digest := strings.Cut(ref, "@")
	host, _, pathed := strings.Cut(tagged, "/")
	if !pathed || !strings.ContainsAny(host, ".:") || strings.HasPrefix(host, "index.docker.io") {
		return nil, errors.New(ref + " does not name its registry")
	}
	if strings.HasPrefix(ref, "docker.io/") && strings.Count(ref, "/") == 1 {
		return nil, errors.New(ref + " must be written as docker.io/library/" + strings.TrimPrefix(ref, "docker.io/"))
	}
	if rest := tagged[strings.LastIndex(tagged, "/"):]; !strings.Contains(rest, ":") && !digest {
		return nil, errors.New(ref + " has neither a tag nor a digest")
	}
	return name.ParseReference(ref)
}

// ImageInUse returns an image for a manifest, from the data of a pod and its node; plain
// is the reference without a digest that the pod does not have.
func ImageInUse(image, id string) (ref, plain string, err error) {
	parsed, err := name.ParseReference(image)
	if err != nil {
		return "", "", err
	}
	repository := strings.Replace(parsed.Context().Name(), name.DefaultRegistry+"/", "docker.io/", 1)
	if d, ok := parsed.(name.Digest); ok {
		ref = repository + "@" + d.DigestStr()
		return ref, ref, nil
	}
	plain = repository + ":" + parsed.Identifier()
	of, digest, pulled := strings.Cut(id, "@")
	if of == repository && pulled && digestForm.MatchString(digest) {
		return plain + "@" + digest, plain, nil
	}
	return plain, plain, nil
}

// CheckArches returns an error for unsupported architectures.
func CheckArches(arches []string) error {
	for _, a := range arches {
		if !slices.Contains(Arches, a) {
			return newProblem(IDUnknownArch, "use one of "+strings.Join(Arches, ", "), "%q is not a supported architecture", a)
		}
	}
	return nil
}

// applyVersions replaces versions in a release. Versions that other programs expect in image
// names can only be changed in the release catalogue.
func (w ManifestRequest) applyVersions(r release.Release) (release.Release, error) {
	with := r
	with.Components = w.Components.OverlaidOn(r.Components)
	free := r
	free.Containerd, free.Runc, free.CRITools = with.Containerd, with.Runc, with.CRITools
	free.CNIPlugins, free.FlannelCNI, free.Registry = with.CNIPlugins, with.FlannelCNI, with.Registry
	if free.Components == with.Components {
		return with, nil
	}
	is, wants := versionsByField(free.Components), versionsByField(with.Components)
	var differ []string
	for field := range wants {
		if is[field] != wants[field] {
			differ = append(differ, field+" "+wants[field]+" instead of "+is[field])
		}
	}
	slices.Sort(differ)
	return r, newProblem(IDWanted,
		"set these versions in $SLIPWAY_HOME/releases.yaml, where the bundle is built and where it is used: clusters "+
			"expect the images of the release catalogue",
		"the manifest changes versions that are part of image names: %s", strings.Join(differ, ", "))
}

// versionsByField returns the versions by field.
func versionsByField(c release.Components) (out map[string]string) {
	raw, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil { // texts always encode
		return nil
	}
	return out
}
