package spec

import (
	"net/url"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// UsesDocker reports whether a cluster uses Docker as its container runtime.
func UsesDocker(c *v1alpha1.Cluster) bool { return c.Spec.ContainerRuntime.Type == runtimeDocker }

// checkContainerRuntime rejects settings that the runtime would silently ignore: Docker
// supports mirrors only for docker.io, only as a host, and sends them the login for
// docker.io.
func (v *validator) checkContainerRuntime() {
	v.checkOneOf("spec.containerRuntime.type", v.c.Spec.ContainerRuntime.Type, []string{runtimeContainerd, runtimeDocker}, nil)
	v.checkContainerdConfig()
	if !UsesDocker(v.c) {
		return
	}
	r := v.c.Spec.Registry
	for i, a := range r.Auths {
		switch at := yamlfile.IndexPath("spec.registry.auths", i) + ".username"; {
		case a.Username == "":
		case a.Registry == dockerHub && len(r.Mirrors[dockerHub]) > 0:
			v.refuse(idDockerAuth, at, "Docker would send this password to the mirrors of docker.io as well",
				"remove the login or the mirrors, or use image pull secrets")
		case len(mirrorsAt(r, a.Registry)) > 0:
			v.warn(idDockerAuth, at, "Docker does not log in to mirrors: it uses the login for "+a.Registry+" only for images with this name", "")
		}
	}
	if own := r.Private; own != nil && len(own.MirrorOf) > 0 {
		v.refuse(idDockerMirror, pathPrivate+".mirrorOf", "Docker cannot use the cluster's own registry as a mirror of another one",
			"remove the field, and use the registry's address in image names")
	}
	for _, name := range sortedKeys(r.Mirrors) {
		at := yamlfile.KeyPath("spec.registry.mirrors", name)
		if name != dockerHub {
			v.refuse(idDockerMirror, at, "Docker supports mirrors only for docker.io: it would never use the mirrors of "+name,
				"remove the mirrors, and use the mirror's address in image names")
			continue
		}
		for i, mirror := range r.Mirrors[name] {
			if u, err := url.Parse(mirror); err == nil && strings.Trim(u.Path, "/") != "" {
				v.refuse(idDockerMirror, yamlfile.IndexPath(at, i), "Docker does not support a mirror with a path: "+strconv.Quote(mirror),
					"write only the scheme and the host")
			}
		}
	}
}
