package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/release"
)

// A ManifestRequest describes a bundle manifest for a version or for a running cluster.
type ManifestRequest struct {
	// Kubernetes is a version; "" selects the default. Arches are the architectures of
	// the bundle; empty selects the architecture of this machine.
	Kubernetes string
	Arches     []string
	Docker     bool
	// Images are references of additional images.
	Images []string
	// Kubeconfig selects a running cluster, which then determines everything except the
	// additional images.
	Kubeconfig []byte
}

// Manifest returns a bundle manifest for a version or for a running cluster. Warnings name the images that it leaves out.
func (a *Access) Manifest(ctx context.Context, r ManifestRequest) (text []byte, warnings diag.List, err error) {
	var w bundle.ManifestRequest
	if r.Kubeconfig != nil {
		w, warnings, err = a.buildManifestOfCluster(ctx, r.Kubeconfig)
	} else {
		w, err = a.buildManifest(r.Kubernetes, r.Arches, r.Docker)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, image := range r.Images {
		if !slices.Contains(w.Images, image) {
			w.Images = append(w.Images, image)
		}
	}
	if text, err = w.Encode(); err != nil {
		return nil, nil, err
	}
	_, err = bundle.ParseWanted("the manifest", text)
	return text, warnings, err
}

func (a *Access) buildManifest(version string, arches []string, docker bool) (bundle.ManifestRequest, error) {
	r, err := a.c.Catalogue.ResolveVersion(version)
	if err != nil {
		return bundle.ManifestRequest{}, err
	}
	if len(arches) == 0 {
		arches = []string{runtime.GOARCH}
	}
	if err := bundle.CheckArches(arches); err != nil {
		return bundle.ManifestRequest{}, err
	}
	w := bundle.NewWanted(r, slices.Compact(slices.Sorted(slices.Values(arches))))
	if docker {
		w.Runtime = "docker"
	}
	return w, nil
}

// buildManifestOfCluster returns the manifest for a running cluster: for its nodes, with all images of
// pods that a bundle of its version does not contain anyway.
func (a *Access) buildManifestOfCluster(ctx context.Context, kubeconfig []byte) (w bundle.ManifestRequest, warnings diag.List, err error) {
	client, err := kube.New(kubeconfig, nil, kube.Options{})
	if err != nil {
		return w, nil, diag.Refuse(idKubeconfigUnusable, err.Error(), "use another file with --kubeconfig")
	}
	defer client.Close()
	nodes, err := client.Nodes().List(ctx)
	var images []kube.PodImage
	if err == nil {
		images, err = client.Pods().ListImages(ctx)
	}
	var said *kube.Error
	if errors.As(err, &said) && ctx.Err() == nil {
		return w, nil, diag.Refuse(idClusterUnreadable, err.Error(), "use --kubeconfig with the kubeconfig of a user who may list nodes and pods")
	}
	if err != nil {
		return w, nil, err
	}
	version, arches, docker := summarizeNodes(nodes)
	if version == "" {
		return w, nil, diag.Refuse(idClusterUnreadable, "no node of the cluster reports its version", "wait until the cluster has nodes")
	}
	if w, err = a.buildManifest(version, arches, docker); err != nil {
		return w, nil, err
	}
	r, err := a.c.Catalogue.ResolveVersion(version)
	if err != nil {
		return w, nil, err
	}
	has := slices.Collect(maps.Values(r.ImageRefs()))
	for _, img := range images {
		ref, plain, err := bundle.ImageInUse(img.Name, img.ID)
		switch {
		case err != nil:
			warnings = append(warnings,
				diag.Diagnostic{
					ID: idImageLeftOut, Severity: diag.Warning,
					Message: fmt.Sprintf("image %s is left out: %v", img.Name, err),
					Hint:    "add the image under images:, with its registry and a tag or a digest",
				})
		case !slices.Contains(has, plain) && !slices.Contains(w.Images, ref):
			w.Images = append(w.Images, ref)
		}
	}
	slices.Sort(w.Images)
	return w, warnings, nil
}

// summarizeNodes returns the version, architectures and runtime of nodes. If the nodes have
// several versions, it returns the newest, to which the others are being upgraded.
func summarizeNodes(nodes []corev1.Node) (version string, arches []string, docker bool) {
	for _, n := range nodes {
		info := n.Status.NodeInfo
		if version == "" || release.IsNewer(info.KubeletVersion, version) {
			version = info.KubeletVersion
		}
		if info.Architecture != "" && !slices.Contains(arches, info.Architecture) {
			arches = append(arches, info.Architecture)
		}
		docker = docker || strings.HasPrefix(info.ContainerRuntimeVersion, "docker://")
	}
	return version, arches, docker
}
