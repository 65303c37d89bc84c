package release

// namedFields returns the name of each component in the catalogue with its value.
func (c *Components) namedFields() []struct {
	name  string
	value *string
} {
	return []struct {
		name  string
		value *string
	}{
		{"etcd", &c.Etcd},
		{"etcdImage", &c.EtcdImage},
		{"coredns", &c.CoreDNS},
		{"pause", &c.Pause},
		{"containerd", &c.Containerd},
		{"runc", &c.Runc},
		{"criTools", &c.CRITools},
		{"cniPlugins", &c.CNIPlugins},
		{"flannel", &c.Flannel},
		{"flannelCNI", &c.FlannelCNI},
		{"echo", &c.Echo},
		{"haproxy", &c.HAProxy},
		{"keepalived", &c.Keepalived},
		{"updater", &c.Updater},
		{"kubeVIP", &c.KubeVIP},
		{"metricsServer", &c.MetricsServer},
		{"localPath", &c.LocalPath},
		{"kubeStateMetrics", &c.KubeStateMetrics},
		{"registry", &c.Registry},
	}
}

// OverlaidOn fills components that c does not name from other, and changes neither.
func (c Components) OverlaidOn(other Components) Components { return c.fillFrom(other) }

// fillFrom fills components that c does not name from other.
func (c Components) fillFrom(other Components) Components {
	theirs := other.namedFields()
	for i, f := range c.namedFields() {
		if *f.value == "" {
			*f.value = *theirs[i].value
		}
	}
	return c
}

func (c Components) missingNames() []string {
	var out []string
	for _, f := range c.namedFields() {
		if *f.value == "" {
			out = append(out, f.name)
		}
	}
	return out
}
