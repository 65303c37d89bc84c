package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestDataDirs_RefuseMoves: data that is moved elsewhere would stay on the host.
func TestDataDirs_RefuseMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ClusterSpec)
		want   []string
	}{
		"nothing": {func(*v1alpha1.ClusterSpec) {}, nil},
		"a kubelet flag": {func(s *v1alpha1.ClusterSpec) {
			s.Kubernetes.Kubelet.ExtraArgs = map[string]string{"root-dir": "/data/kubelet", "v": "4"}
		}, []string{"root-dir moves data out of /var/lib/kubelet; Slipway waits at boot only for a disk at /var/lib/kubelet, " +
			"and removes this data only from /var/lib/kubelet"}},
		"the standard directory": {func(s *v1alpha1.ClusterSpec) {
			s.Kubernetes.Kubelet.ExtraArgs = map[string]string{"root-dir": "/var/lib/kubelet"}
			s.Kubernetes.Kubelet.Config = map[string]any{"staticPodPath": "/etc/kubernetes/manifests"}
			s.ContainerRuntime.Config = "root = '/var/lib/containerd'"
		}, nil},
		"a kubelet field": {func(s *v1alpha1.ClusterSpec) {
			s.Kubernetes.Kubelet.Config = map[string]any{"podLogsDir": "/data/logs", "maxPods": 60}
		}, []string{"podLogsDir moves data out of /var/log/pods; Slipway waits at boot only for a disk at /var/log/pods, " +
			"and removes this data only from /var/log/pods"}},
		"containerd": {func(s *v1alpha1.ClusterSpec) {
			s.ContainerRuntime.Config = "root = \"/data/containerd\"\n[plugins.\"io.containerd.snapshotter.v1.overlayfs\"]\nroot_path " +
				"= \"/data/o\"\n"
		}, []string{
			"line 1: root moves data out of /var/lib/containerd; Slipway waits at boot only for a disk at /var/lib/containerd, " +
				"and removes this data only from /var/lib/containerd",
			"line 3: root_path moves data out of /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs; " +
				"Slipway waits at boot only for a disk at /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs, " +
				"and removes this data only from /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			tc.change(&c.Spec)
			v := &validator{c: c}
			v.checkDataDirs(c.Spec.Kubernetes.Kubelet)
			v.checkContainerdConfig()
			var got []string
			for _, d := range v.found {
				got = append(got, d.Message)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
