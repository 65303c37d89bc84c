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
		}, []string{"root-dir moves data away from /var/lib/kubelet: Slipway would not wait for its disk at boot, and " +
			"would not remove the data"}},
		"the standard directory": {func(s *v1alpha1.ClusterSpec) {
			s.Kubernetes.Kubelet.ExtraArgs = map[string]string{"root-dir": "/var/lib/kubelet"}
			s.Kubernetes.Kubelet.Config = map[string]any{"staticPodPath": "/etc/kubernetes/manifests"}
			s.ContainerRuntime.Config = "root = '/var/lib/containerd'"
		}, nil},
		"a kubelet field": {func(s *v1alpha1.ClusterSpec) {
			s.Kubernetes.Kubelet.Config = map[string]any{"podLogsDir": "/data/logs", "maxPods": 60}
		}, []string{"podLogsDir moves data away from /var/log/pods: Slipway would not wait for its disk at boot, and would not remove the data"}},
		"containerd": {func(s *v1alpha1.ClusterSpec) {
			s.ContainerRuntime.Config = "root = \"/data/containerd\"\n[plugins.\"io.containerd.snapshotter.v1.overlayfs\"]\nroot_path " +
				"= \"/data/o\"\n"
		}, []string{
			"line 1: root moves data away from /var/lib/containerd: Slipway would not wait for its disk at boot, and would not remove the data",
			"line 3: root_path moves data away from /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs: " +
				"Slipway would not wait for its disk at boot, and would not remove the data",
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
