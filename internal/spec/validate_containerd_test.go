package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestContainerdConfig_RefusesOldNames has settings as people find them: with the names of containerd 1,
// which containerd 2 ignores in a file of version 3.
func TestContainerdConfig_RefusesOldNames(t *testing.T) {
	const (
		moved   = " in version 3 of containerd's settings, and would ignore it"
		unknown = " in version 3 of its settings, and would ignore the section"
		runtime = `[plugins."io.containerd.cri.v1.runtime"]`
		images  = `[plugins."io.containerd.cri.v1.images"]`
	)
	for name, tc := range map[string]struct {
		config string
		want   []string
	}{
		"nothing": {"", nil},
		"settings of version 3": {`
[debug]
  level = "debug"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/mine"
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_port = "10010"
[plugins."io.containerd.gc.v1.scheduler"]
  pause_threshold = 0.02
`, nil},
		"what NVIDIA's toolkit writes": {`version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"`, []string{
			"line 1: version is not allowed here: Slipway writes version = 3; leave this line out, and write settings of version 3",
			"line 2: plugin io.containerd.grpc.v1.cri has no setting containerd" + moved + "; write it as containerd in " + runtime,
		}},
		"version 3 twice": {
			"# version = 2\nversion = 3",
			[]string{"line 2: version is not allowed here: Slipway writes version = 3; leave this line out"},
		},
		"all in one plugin": {`[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example.com/pause:3.10"
  enable_selinux = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
    endpoint = ["https://m.example.com"]`, []string{
			"line 4: plugin io.containerd.grpc.v1.cri has no setting containerd.snapshotter" + moved + "; write it as snapshotter in " + images,
			"line 4: plugin io.containerd.grpc.v1.cri has no setting containerd" + moved + "; write it as containerd in " + runtime,
			"line 1: plugin io.containerd.grpc.v1.cri has no setting enable_selinux" + moved + "; write it as enable_selinux in " + runtime,
			"line 6: registry mirrors and logins are not allowed here: containerd would not start, or would ignore them; set them in spec.registry",
			"line 1: plugin io.containerd.grpc.v1.cri has no setting sandbox_image" + moved + "; write it as pinned_images.sandbox in " + images,
		}},
		"mirrors in the right plugin": {`[plugins."io.containerd.cri.v1.images".registry]
  mirrors = {}`, []string{
			"line 1: registry mirrors and logins are not allowed here: containerd would not start, or would ignore them; set them in spec.registry",
		}},
		"a setting of the other plugin": {`plugins = {"io.containerd.cri.v1.runtime" = {containerd = {snapshotter = "native"}}}`, []string{
			"line 1: plugin io.containerd.cri.v1.runtime has no setting containerd.snapshotter" + moved + "; write it as snapshotter in " + images,
		}},
		"names of version 1": {"[plugins.cri]\n[plugins.linux]\n[plugins.opt]\npath = \"/x\"\n[plugins.mine]", []string{
			"line 1: containerd has no plugin cri" + unknown + "; write it as " + runtime,
			"line 2: containerd has no plugin linux" + unknown + "; leave the section out",
			"line 5: containerd has no plugin mine" + unknown + "; leave the section out",
			`line 3: containerd has no plugin opt` + unknown + `; write it as [plugins."io.containerd.internal.v1.opt"]`,
		}},
		"a plugin of another name": {`[plugins."io.containerd.internal.v1.restart"]`, []string{
			"line 1: containerd has no plugin io.containerd.internal.v1.restart" + unknown +
				`; write it as [plugins."io.containerd.monitor.container.v1.restart"]`,
		}},
		"what the package of Docker's writes": {`disabled_plugins = ["cri", "io.containerd.snapshotter.v1.zfs"]`, []string{
			"line 1: plugin cri cannot be disabled: the kubelet needs it to run containers; remove the plugin from disabled_plugins",
		}},
		"no mapping": {"plugins = 1\ndisabled_plugins = 2", nil},
		"not TOML": {
			"[debug",
			[]string{"line 1, column 6: expected '.' or ']' to end table name, but got '\\x00' instead; write " +
				"containerd settings in TOML; the line and column are counted from the start of this text"},
		},
		"a key in text": {"[plugins.\"io.containerd.nri.v1.nri\"]\nsocket_path = \"version\"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			c.Spec.ContainerRuntime.Config = tc.config
			v := &validator{c: c}
			v.checkContainerdConfig()
			var got []string
			for _, d := range v.found {
				got = append(got, strings.TrimSpace(d.Message+"; "+d.Hint))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
