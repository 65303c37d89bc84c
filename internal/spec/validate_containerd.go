package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

const pathContainerd = "spec.containerRuntime.config"

// containerd plugins for the requests of the kubelet, with their names in version 3 of
// containerd's settings. Up to version 2 the first plugin had the settings of all three.
const (
	criServer  = "io.containerd.grpc.v1.cri"
	criRuntime = "io.containerd.cri.v1.runtime"
	criImages  = "io.containerd.cri.v1.images"
)

// containerdKeys lists the settings that only one of the three plugins has. All other
// settings belong to criRuntime.
var containerdKeys = map[string]string{
	"disable_tcp_service": criServer, "stream_server_address": criServer, "stream_server_port": criServer,
	"stream_idle_timeout": criServer, "enable_tls_streaming": criServer, "x509_key_pair_streaming": criServer,

	"sandbox_image": criImages, "pinned_images": criImages, "registry": criImages, "image_decryption": criImages,
	"max_concurrent_downloads": criImages, "concurrent_layer_fetch_buffer": criImages, "image_pull_progress_timeout": criImages,
	"image_pull_with_sync_fs": criImages, "stats_collect_period": criImages, "use_local_image_pull": criImages,
	"runtime_platforms": criImages,
	"snapshotter":       criImages, "disable_snapshot_annotations": criImages, "discard_unpacked_layers": criImages,
}

// oldPlugins maps the names of other plugins up to version 2 of the settings to their
// names in version 3; "" means that containerd no longer has the plugin.
var oldPlugins = map[string]string{
	"io.containerd.monitor.v1.cgroups":  "io.containerd.monitor.task.v1.cgroups",
	"io.containerd.internal.v1.restart": "io.containerd.monitor.container.v1.restart",
	"io.containerd.runtime.v1.linux":    "",
	"io.containerd.snapshotter.v1.aufs": "",

	"cri": criRuntime, "cgroups": "io.containerd.monitor.task.v1.cgroups", "restart": "io.containerd.monitor.container.v1.restart",
	"scheduler": "io.containerd.gc.v1.scheduler", "bolt": "io.containerd.metadata.v1.bolt", "task": "io.containerd.runtime.v2.task",
	"opt": "io.containerd.internal.v1.opt", "tracing": "io.containerd.internal.v1.tracing", "otlp": "io.containerd.tracing.processor.v1.otlp",
	"devmapper": "io.containerd.snapshotter.v1.devmapper", "overlayfs": "io.containerd.snapshotter.v1.overlayfs",
	"btrfs": "io.containerd.snapshotter.v1.btrfs", "zfs": "io.containerd.snapshotter.v1.zfs", "native": "io.containerd.snapshotter.v1.native",
	"linux": "", "aufs": "",
}

// checkContainerdConfig parses the settings as containerd does, and rejects settings with
// which containerd would not start, and settings that it would ignore without an error.
func (v *validator) checkContainerdConfig() {
	text := v.c.Spec.ContainerRuntime.Config
	var settings map[string]any
	if _, err := toml.Decode(text, &settings); err != nil {
		message := err.Error()
		if at := (toml.ParseError{}); errors.As(err, &at) {
			message = fmt.Sprintf("line %d, column %d: %s", at.Position.Line, at.Position.Col, at.Message)
		}
		v.refuse(idInvalidValue, pathContainerd, message,
			"write containerd settings in TOML; the line and column are counted from the start of this text")
		return
	}
	c := containerdChecker{v, text}
	if version, ok := settings["version"]; ok {
		hint := "leave this line out"
		if version != int64(3) {
			hint += ", and write settings of version 3"
		}
		c.refuse(c.findLine("version", ""), "version is not allowed here: Slipway writes version = 3", hint)
	}
	c.checkDataDirs(settings)
	plugins, _ := settings["plugins"].(map[string]any)
	for _, name := range sortedKeys(plugins) {
		keys, _ := plugins[name].(map[string]any)
		c.checkPlugin(name, keys)
	}
	disabled, _ := settings["disabled_plugins"].([]any)
	for _, name := range disabled {
		if name, _ := name.(string); !UsesDocker(v.c) && slices.Contains([]string{"cri", criServer, criRuntime, criImages}, name) {
			c.refuse(c.findLine("disabled_plugins", ""), "plugin "+name+" cannot be disabled: the kubelet needs it to run containers",
				"remove the plugin from disabled_plugins")
		}
	}
}

// A containerdChecker checks the settings of containerd plugins.
type containerdChecker struct {
	*validator
	text string
}

func (c containerdChecker) refuse(line int, message, hint string) {
	if line > 0 {
		message = fmt.Sprintf("line %d: %s", line, message)
	}
	c.validator.refuse(idInvalidValue, pathContainerd, message, hint)
}

// findLine returns the first line that contains a word followed by another word; 0 if there
// is none. TOML has several spellings for a key, so the line is only a help.
func (c containerdChecker) findLine(word, then string) int {
	has := regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(word) + `($|[^\w-])(.*\b` + regexp.QuoteMeta(then) + `\b)?`)
	first := 0
	for i, text := range strings.Split(c.text, "\n") {
		text, _, _ = strings.Cut(text, "#")
		m := has.FindStringSubmatch(text)
		switch {
		case m == nil:
		case then == "" || m[3] != "":
			return i + 1
		case first == 0:
			first = i + 1
		}
	}
	return first
}

// checkPlugin checks the name of a plugin, and that its settings do not belong to another
// plugin.
func (c containerdChecker) checkPlugin(name string, keys map[string]any) {
	if instead, old := oldPlugins[name]; old || !strings.HasPrefix(name, "io.containerd.") {
		hint := "leave the section out"
		if instead != "" {
			hint = "write it as [plugins." + strconv.Quote(instead) + "]"
		}
		c.refuse(c.findLine(name, ""), "containerd has no plugin "+name+" in version 3 of its settings, and would ignore the section", hint)
		return
	}
	if !slices.Contains([]string{criServer, criRuntime, criImages}, name) {
		return
	}
	for _, key := range sortedKeys(keys) {
		below, _ := keys[key].(map[string]any)
		if key == "registry" && (below["mirrors"] != nil || below["configs"] != nil || below["auths"] != nil) {
			c.refuse(c.findLine(name, key),
				"registry mirrors and logins are not allowed here: containerd would not start, or would ignore them",
				"set them in spec.registry")
			continue
		}
		owner := containerdKeys[key]
		if owner == "" {
			owner = criRuntime
		}
		if key == "containerd" && name != criImages { // some of its settings have moved to other plugins
			for _, key := range []string{"snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"} {
				if below[key] != nil {
					c.refuseMoved(name, "containerd", "containerd."+key, criImages, key)
				}
			}
		}
		if owner != name {
			to := key
			if key == "sandbox_image" {
				to = "pinned_images.sandbox"
			}
			c.refuseMoved(name, key, key, owner, to)
		}
	}
}

// refuseMoved rejects a setting that another plugin has.
func (c containerdChecker) refuseMoved(name, near, key, owner, to string) {
	c.refuse(c.findLine(name, near), "plugin "+name+" has no setting "+key+" in version 3 of containerd's settings, and would ignore it",
		"write it as "+to+" in [plugins."+strconv.Quote(owner)+"]")
}
