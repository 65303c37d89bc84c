package modules

import (
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
)

// An image consists of units, each of which is one layer. Images share layers.
type image struct {
	name string
	// layers are the names of units, lowest first. The last unit gives the version.
	layers     []string
	entrypoint []string
	// cmd has the arguments for pods that give none.
	cmd  []string
	user string
}

// imageList returns the images of every release, except kube-vip: its module has no
// checksum.
func imageList() []image {
	list := []image{
		{name: "etcd", layers: []string{"base", "etcd"}, entrypoint: []string{"/usr/local/bin/etcd"}},
		{name: "coredns", layers: []string{"base", "coredns"}, entrypoint: []string{"/coredns"}, user: "65532:65532"},
		{name: "pause", layers: []string{"pause"}, entrypoint: []string{"/pause"}, user: "65535:65535"},
		{name: "flannel", layers: []string{"base", "nettools", "flannel"}, entrypoint: []string{"/opt/bin/flanneld"}},
		{name: "echo", layers: []string{"echo"}, entrypoint: []string{"/echo"}, user: "65532:65532"},
		{name: "haproxy", layers: []string{"base", "haproxy"}, entrypoint: []string{"/usr/sbin/haproxy"}, user: "65532:65532"},
		// To hold an address and to send VRRP it must be root.
		{name: "keepalived", layers: []string{"base", "probe", "keepalived"}, entrypoint: []string{"/usr/sbin/keepalived"}},
		{
			name: "apiserver-updater", layers: []string{"base", "apiserver-updater"},
			entrypoint: []string{"/apiserver-updater"}, user: "65532:65532",
		},
		{name: "metrics-server", layers: []string{"base", "metrics-server"}, entrypoint: []string{"/metrics-server"}, user: "65532:65532"},
		{
			name: "local-path", layers: []string{"base", "local-path"},
			entrypoint: []string{"/usr/bin/local-path-provisioner"}, user: "65532:65532",
		},
		{
			name: "kube-state-metrics", layers: []string{"base", "kube-state-metrics"},
			entrypoint: []string{"/kube-state-metrics"}, user: "65532:65532",
		},
		{name: "kube-proxy", layers: []string{"base", "nettools", "kubernetes"}, entrypoint: []string{"/usr/local/bin/kube-proxy"}},
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		list = append(list, image{name: name, layers: []string{"base", "kubernetes"}, entrypoint: []string{"/usr/local/bin/" + name}})
	}
	return list
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// makeImage assembles an image. The image contains no time.
func (i image) makeImage(arch string, have map[string]built) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, name := range i.layers {
		b, ok := have[name]
		if !ok {
			return nil, fmt.Errorf("image %s needs %s, which was not built", i.name, name)
		}
		var err error
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:     pack.Layer{File: b.File},
			History:   v1.History{CreatedBy: "slipway bundle build", Comment: name},
			MediaType: types.OCILayer,
		})
		if err != nil {
			return nil, err
		}
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	cf.Config = v1.Config{Entrypoint: i.entrypoint, Cmd: i.cmd, User: i.user, WorkingDir: "/", Env: []string{searchPath}}
	return mutate.ConfigFile(img, cf)
}

// makeImages assembles all images of an architecture from their units.
func (r *runner) makeImages(arch string, have map[string]built) ([]source.Image, error) {
	refs := r.request.Release.ImageRefs()
	var out []source.Image
	for _, i := range r.source.images {
		img, err := i.makeImage(arch, have)
		if err != nil {
			return nil, fmt.Errorf("creating image %s: %w", i.name, err)
		}
		name := i.layers[len(i.layers)-1]
		last := r.units[name]
		licence := last.Licence
		for _, l := range i.layers[:len(i.layers)-1] {
			licence += " AND " + r.units[l].Licence
		}
		out = append(out,
			source.Image{
				Name: i.name, Version: have[name].versionOf(last), Arch: arch, Licence: joinLicences(licence),
				Ref: refs[i.name], Image: img,
			})
	}
	return out, nil
}

// versionOf returns the version of the program in a unit. For a program from a Debian
// package, it is the version of the package, which is known after the download.
func (b built) versionOf(u unit) string {
	if u.Pick != pickNamed {
		return u.Version
	}
	i := slices.IndexFunc(b.Origins, func(o source.Origin) bool { return o.Kind == "package" && o.Name == u.Name })
	if i < 0 {
		return u.Version
	}
	return b.Origins[i].Version
}
