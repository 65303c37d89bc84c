package etcd

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// unpackPrograms returns the operation that unpacks the programs of etcd.
func unpackPrograms(s *engine.Scope) (op.Unpack, error) {
	return module.UnpackComponent(s, "etcd", "usr/local/bin/", programs)
}

// installPrograms transfers the etcd programs to a host. The programs of a running
// member are replaced when the member is restarted.
func installPrograms(env module.Env, s *engine.Scope) (op.List, error) {
	u, err := unpackPrograms(s)
	if err != nil {
		return nil, err
	}
	list := op.List{module.FetchContent(u)}
	if env.RunsEtcd(s.Host()) && hasJoined(s.Host()) {
		return list, nil
	}
	return append(list, u), nil
}

// unitFile returns the systemd unit of etcd.
func unitFile(env module.Env, h *engine.Host) (op.File, error) {
	args := env.Cluster.Spec.Etcd.ExtraArgs
	text, err := module.RenderTemplate(files, module.EtcdUnitName, map[string]any{
		"Initial": initial, "Data": facts.EtcdData, "Joined": facts.EtcdJoined, "Program": program, "Args": memberArguments(env, h),
		"Mounts": module.UnitMounts(facts.DirEtcd), "Directory": optionalPath(facts.DirEtcd), "Logs": logDirs(args), "LowPort": lowPort(args),
	})
	return op.File{Path: module.EtcdUnitFile, Content: text}, err
}

// serviceOps returns the data directory of etcd and its unit. The unit of a running
// member is written when the member is restarted.
func serviceOps(env module.Env, s *engine.Scope) (op.List, error) {
	h := s.Host()
	list := op.List{
		op.Dir{Path: facts.DirEtcd, Mode: 0o700, Exclusive: true},
		op.Dir{Path: "/etc/kubernetes/slipway", Mode: 0o700},
	}
	if hasJoined(h) {
		return list, nil
	}
	unit, err := unitFile(env, h)
	if err != nil {
		return nil, err
	}
	list = append(list, unit)
	if joinsExisting(env, s) || h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdData) {
		return list, nil
	}
	return append(list, op.File{Path: initial, Mode: 0o600, Content: initialConfig(env)}), nil
}

// initialConfig returns the initial configuration of a member. It is not updated later: a
// member with data does not use it.
func initialConfig(env module.Env) []byte {
	var members []string
	for _, h := range spec.EtcdHosts(env.Cluster) {
		members = append(members, h.Name+"="+module.EtcdURL(h, hostroles.EtcdPeerPort))
	}
	return fmt.Appendf(nil, "ETCD_INITIAL_CLUSTER=%s\nETCD_INITIAL_CLUSTER_STATE=new\nETCD_INITIAL_CLUSTER_TOKEN=%s\n",
		strings.Join(members, ","), env.Cluster.Name)
}

// memberArguments returns the arguments that kubeadm gives its members. Arguments of
// the user override them by key.
func memberArguments(env module.Env, h *engine.Host) string {
	clients, peers := module.EtcdURL(h.Host, hostroles.EtcdClientPort), module.EtcdURL(h.Host, hostroles.EtcdPeerPort)
	args := map[string]string{
		"name":                           h.Name,
		"data-dir":                       facts.DirEtcd,
		"listen-client-urls":             module.LocalEtcdURL() + "," + clients,
		"advertise-client-urls":          clients,
		"listen-peer-urls":               peers,
		"initial-advertise-peer-urls":    peers,
		"listen-metrics-urls":            "http://127.0.0.1:2381",
		"trusted-ca-file":                module.EtcdCA,
		"cert-file":                      serverCert,
		"key-file":                       serverKey,
		"client-cert-auth":               "true",
		"peer-trusted-ca-file":           module.EtcdCA,
		"peer-cert-file":                 peerCert,
		"peer-key-file":                  peerKey,
		"peer-client-cert-auth":          "true",
		"watch-progress-notify-interval": "5s",
	}
	maps.Copy(args, env.Cluster.Spec.Etcd.ExtraArgs)
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(args)) {
		b.WriteString(" " + module.UnitWord("--"+k+"="+args[k]))
	}
	return b.String()
}

// optionalPath marks a path that may be missing. The checks of the unit then report what is
// wrong, instead of a systemd setup error.
func optionalPath(path string) string { return module.UnitMounts("-" + path) }

// logDirs returns the directories of log files that the user has configured: etcd creates
// more files there when it rotates them.
func logDirs(args map[string]string) (dirs []string) {
	for to := range strings.SplitSeq(args["log-outputs"], ",") {
		if dir := optionalPath(path.Dir(to)); path.IsAbs(to) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// lowPort reports whether the user makes etcd listen on one of the first 1024 ports.
func lowPort(args map[string]string) bool {
	return slices.ContainsFunc([]string{"listen-metrics-urls", "listen-client-http-urls"}, func(key string) bool {
		return slices.ContainsFunc(strings.Split(args[key], ","), func(text string) bool {
			u, err := url.Parse(strings.TrimSpace(text))
			if err != nil {
				return false // etcd reports the error
			}
			port, err := strconv.Atoi(u.Port())
			return err == nil && port < 1024
		})
	})
}
