package bundle

import (
	"context"
	"path/filepath"
	"strings"

	"slipway.dev/slipway/internal/release"
)

// ExtendCatalogue extends a release catalogue with the versions of bundles for minor versions
// after all that it lists: first bundles that are named by a path or a reference, then
// bundles in the cache. A bundle in the cache that cannot be read is skipped.
func ExtendCatalogue(ctx context.Context, c *release.Catalogue, cache string, at Registry, named ...string) (*release.Catalogue, error) {
	links, err := filepath.Glob(filepath.Join(cache, "bundles", "v*_*"))
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		version, _, _ := strings.Cut(filepath.Base(link), "_")
		if _, err := c.ResolveVersion(version); err == nil {
			continue // there is nothing to learn
		}
		path, err := filepath.EvalSymlinks(link)
		if err != nil {
			continue
		}
		if b, err := openDir(path); err == nil {
			c = c.WithVersion(b.manifest.Kubernetes, b.manifest.componentVersions())
		}
	}
	for _, name := range named {
		b, err := Open(ctx, name, cache, at)
		if err != nil {
			return nil, err
		}
		c = c.WithVersion(b.manifest.Kubernetes, b.manifest.componentVersions())
	}
	return c, nil
}

// componentVersions returns the component versions of a bundle. Image names keep the versions that
// clusters expect, whatever program versions the bundle has.
func (m Manifest) componentVersions() release.Components {
	has := map[string]string{}
	for _, c := range m.Components {
		has[c.Name] = c.Version
	}
	tag := map[string]string{}
	for _, i := range m.Images {
		if at := strings.LastIndexByte(i.Ref, ':'); at >= 0 && !i.Extra {
			tag[i.Name] = strings.TrimPrefix(i.Ref[at+1:], "v")
		}
	}
	return release.Components{
		Etcd: has["etcd"], Containerd: has["containerd"], CRITools: has["crictl"], CNIPlugins: has["cni-plugins"], Registry: has["registry"],
		EtcdImage: tag["etcd"], CoreDNS: tag["coredns"], Pause: tag["pause"], Flannel: tag["flannel"], Echo: tag["echo"],
		HAProxy: tag["haproxy"], Keepalived: tag["keepalived"], Updater: tag["apiserver-updater"], KubeVIP: tag["kube-vip"],
		MetricsServer: tag["metrics-server"], LocalPath: tag["local-path"], KubeStateMetrics: tag["kube-state-metrics"],
	}
}
