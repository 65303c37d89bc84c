package spec

import (
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// Settings that move data of a node away from the directory in which Slipway checks the
// free space, waits for the disk at boot, and removes the data, each with its standard
// directory.
var (
	kubeletDirFlags = map[string]string{"root-dir": "/var/lib/kubelet", "cert-dir": "/var/lib/kubelet/pki"}
	kubeletDirs     = map[string]string{"podLogsDir": "/var/log/pods"}
	containerdDirs  = map[string]string{"root": "/var/lib/containerd", "state": "/run/containerd"}
)

// rootPath is the setting that moves the data of a containerd snapshotter.
const rootPath = "root_path"

// checkDataDirs rejects kubelet settings that move its data. Slipway would leave the data on
// the host when it leaves the cluster, with the volumes of pods mounted.
func (v *validator) checkDataDirs(k v1alpha1.KubeletSettings) {
	for _, flag := range sortedKeys(k.ExtraArgs) {
		if dir := kubeletDirFlags[flag]; dir != "" && k.ExtraArgs[flag] != dir {
			v.refuse(idConflictingFields, yamlfile.KeyPath("spec.kubernetes.kubelet.extraArgs", flag), movedFrom(flag, dir), mountAt(dir))
		}
	}
	const manifests, staticPods = "/etc/kubernetes/manifests", "staticPodPath"
	if dir, ok := k.Config[staticPods]; ok && dir != manifests {
		v.refuse(idConflictingFields, yamlfile.KeyPath("spec.kubernetes.kubelet.config", staticPods),
			"the pods of the control plane are in "+manifests+", and a kubelet with another "+staticPods+" would not start them",
			"leave the setting out, and put your own static pods into "+manifests)
	}
	for _, field := range sortedKeys(k.Config) {
		if dir := kubeletDirs[field]; dir != "" && k.Config[field] != dir {
			v.refuse(idConflictingFields, yamlfile.KeyPath("spec.kubernetes.kubelet.config", field), movedFrom(field, dir), mountAt(dir))
		}
	}
}

// checkDataDirs rejects the same settings of containerd.
func (c containerdChecker) checkDataDirs(settings map[string]any) {
	for _, key := range sortedKeys(settings) {
		if dir := containerdDirs[key]; dir != "" && settings[key] != dir {
			c.refuse(c.findLine(key, ""), movedFrom(key, dir), mountAt(dir))
		}
	}
	plugins, _ := settings["plugins"].(map[string]any)
	for _, name := range sortedKeys(plugins) {
		keys, _ := plugins[name].(map[string]any)
		dir := containerdDirs["root"] + "/" + name
		if moved, ok := keys[rootPath]; ok && strings.HasPrefix(name, "io.containerd.snapshotter.") && moved != dir {
			c.refuse(c.findLine(rootPath, ""), movedFrom(rootPath, dir), mountAt(dir))
		}
	}
}

func movedFrom(setting, dir string) string {
	return setting + " moves data out of " + dir + "; Slipway waits at boot only for a disk at " + dir +
		", and removes this data only from " + dir
}

func mountAt(dir string) string {
	return "leave the setting out, and mount the disk at " + dir + "; a symbolic link there to a directory on the disk also works"
}
