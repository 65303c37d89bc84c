// Package module is what the modules below it share: what they are made for,
// and the keys of the values they hand to each other. Modules never import
// one another.
package module

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/release"
)

// An Env is what a pipeline is made for. The cluster is complete: defaults
// are filled in and paths are absolute.
type Env struct {
	Cluster *v1alpha1.Cluster
	Release release.Release
}

// Content is a bundle, as the modules see it.
type Content interface {
	Component(name, arch string) (bundle.Component, error)
	Image(name, arch string) (op.Image, error)
}

// Keys of values that go from one module to another.
var (
	// KeyContent is the opened bundle.
	KeyContent = engine.NewKey[Content]("bundle", unknownContent{})
	// KeyKube is a client with administrator's rights.
	KeyKube = engine.NewKey[*kube.Client]("kube", nil)
)

// FirstControlPlane is the host on which the cluster begins.
func (e Env) FirstControlPlane() v1alpha1.Host {
	for _, h := range e.Cluster.Spec.Hosts {
		if slices.Contains(h.Roles, v1alpha1.RoleControlPlane) {
			return h
		}
	}
	return v1alpha1.Host{}
}

// IsFirst selects that host.
func (e Env) IsFirst(h *engine.Host) bool { return h.Name == e.FirstControlPlane().Name }

// IsNode selects hosts that run a kubelet.
func IsNode(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleControlPlane) || h.HasRole(v1alpha1.RoleWorker)
}

// JoinsAsWorker selects hosts that join as plain workers.
func JoinsAsWorker(h *engine.Host) bool {
	return h.HasRole(v1alpha1.RoleWorker) && !h.HasRole(v1alpha1.RoleControlPlane)
}

// InternalAddress is where other nodes reach a host.
func InternalAddress(h v1alpha1.Host) string {
	if h.InternalAddress != "" {
		return h.InternalAddress
	}
	return h.Address
}

// Endpoint is the API's name and port as nodes use it.
func (e Env) Endpoint() string {
	ep := e.Cluster.Spec.ControlPlaneEndpoint
	return net.JoinHostPort(ep.Domain, strconv.Itoa(ep.Port))
}

// EndpointAddress is what the API's name resolves to on a host.
func (e Env) EndpointAddress() string {
	if a := e.Cluster.Spec.ControlPlaneEndpoint.Address; a != "" {
		return a
	}
	return InternalAddress(e.FirstControlPlane())
}

// Arch is a host's architecture.
func Arch(h *engine.Host) string {
	if h.Arch != "" {
		return h.Arch
	}
	if h.Facts != nil {
		return h.Facts.Arch
	}
	return ""
}

// Programs fetches a component of the bundle and unpacks what is below strip
// into dir.
func Programs(s *engine.Scope, name, strip, dir string, members ...string) (op.List, error) {
	c, err := engine.Get(s, KeyContent).Component(name, Arch(s.Host()))
	if err != nil {
		return nil, fmt.Errorf("taking %s from the bundle: %w", name, err)
	}
	return op.List{
		op.FetchBlob{Blob: c.Blob, Name: name},
		op.Unpack{Blob: c.Blob, Name: name, Dir: dir, Strip: strip, Members: members},
	}, nil
}

// unknownContent stands in for a bundle that is yet to be made.
type unknownContent struct{}

// unknownDigest is that of no blob, and well-formed: hosts check what they are
// asked before the bundle is known.
const unknownDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func (unknownContent) Component(name, arch string) (bundle.Component, error) {
	return bundle.Component{Name: name, Arch: arch, Blob: op.Blob{Digest: unknownDigest}}, nil
}

func (unknownContent) Image(name, _ string) (op.Image, error) {
	return op.Image{Ref: name, Manifest: op.Blob{Digest: unknownDigest}}, nil
}
