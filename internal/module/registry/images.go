package registry

import (
	"encoding/json"
	"strings"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

// An index lists the architectures of an image, in OCI format.
type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	Platform  platform `json:"platform"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// imagesToPush returns the images of a bundle as the registry stores them: each once
// for all architectures, in the folder of its original registry. If several images have
// one tag, the others are available by digest.
func imagesToPush(images []bundle.Image) ([]op.PushedImage, error) {
	var out []op.PushedImage
	tags, places, lists := bundle.TagNames(images), map[string]int{}, map[string]*index{}
	for _, i := range images {
		at, known := places[i.Ref]
		if !known {
			at = len(out)
			repository, tag := imagePlace(i.Ref)
			if tags[i.Ref] == "" {
				tag = ""
			}
			out, places[i.Ref] = append(out, op.PushedImage{Repository: repository, Tag: tag}), at
			lists[i.Ref] = &index{SchemaVersion: 2, MediaType: "application/vnd.oci.image.index.v1+json"}
		}
		out[at].Platforms = append(out[at].Platforms, i.Image)
		list := lists[i.Ref]
		list.Manifests = append(list.Manifests, descriptor{
			MediaType: i.MediaType, Digest: i.Manifest.Digest, Size: i.Manifest.Size, Platform: platform{i.Arch, "linux"},
		})
		if i.Index != nil { // pods may use its digest
			out[at].Index = i.Index
			continue
		}
		raw, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		out[at].Index = raw
	}
	return out, nil
}

// imagePlace returns the repository and tag of an image in the registry, below the
// folder of its original registry.
func imagePlace(ref string) (repository, tag string) {
	ref, _, _ = strings.Cut(ref, "@")
	host, rest, _ := strings.Cut(ref, "/")
	if at := strings.LastIndex(rest, ":"); at > strings.LastIndex(rest, "/") {
		rest, tag = rest[:at], rest[at+1:]
	}
	return spec.RegistryFolder(host) + "/" + rest, tag
}
