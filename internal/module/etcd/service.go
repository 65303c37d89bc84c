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
)

// unpacks is etcd's programs.
func unpacks(s *engine.Scope) (op.Unpack, error) {
	return module.Program(s, "etcd", "usr/local/bin/", programs)
}

// install has programs of etcd on a host; those of a member are put in their place
// when it is its turn to be restarted.
func install(env module.Env, s *engine.Scope) (op.List, error) {
	u, err := unpacks(s)
	if err != nil {
		return nil, err
	}
	list := op.List{module.Fetch(u)}
	if env.RunsEtcd(s.Host()) && joined(s.Host()) {
		return list, nil
	}
	return append(list, u), nil
}

// unitFile is etcd's unit.
func unitFile(env module.Env, h *engine.Host) (op.File, error) {
	args := env.Cluster.Spec.Etcd.ExtraArgs
	text, err := module.Render(files, module.EtcdUnitName, map[string]any{
		"Initial": initial, "Data": facts.EtcdData, "Joined": facts.EtcdJoined, "Program": program, "Args": arguments(env, h),
		"Mounts": module.UnitMounts(facts.DirEtcd), "Directory": optional(facts.DirEtcd), "Logs": logs(args), "LowPort": lowPort(args),
	})
	return op.File{Path: module.EtcdUnitFile, Content: text}, err
}

// service is etcd's place on a disk, and its unit; that of a member that serves is
// written when it is its turn to be restarted.
func service(env module.Env, s *engine.Scope) (op.List, error) {
	h := s.Host()
	list := op.List{
		op.Dir{Path: facts.DirEtcd, Mode: 0o700, Exclusive: true},
		op.Dir{Path: "/etc/kubernetes/slipway", Mode: 0o700},
	}
	if joined(h) {
		return list, nil
	}
	unit, err := unitFile(env, h)
	if err != nil {
		return nil, err
	}
	list = append(list, unit)
	if joins(env, s) || h.Facts != nil && slices.Contains(h.Facts.Present, facts.EtcdData) {
		return list, nil
	}
	return append(list, op.File{Path: initial, Mode: 0o600, Content: beginning(env)}), nil
}

// beginning is what a member begins with. It stays as it was then: members come
// and go, and one with data does not ask it.
func beginning(env module.Env) []byte {
	var members []string
	for _, h := range spec.EtcdHosts(env.Cluster) {
		members = append(members, h.Name+"="+module.EtcdURL(h, facts.EtcdPeerPort))
	}
	return fmt.Appendf(nil, "ETCD_INITIAL_CLUSTER=%s\nETCD_INITIAL_CLUSTER_STATE=new\nETCD_INITIAL_CLUSTER_TOKEN=%s\n", strings.Join(members, ","), env.Cluster.Name)
}

// arguments are those that kubeadm gives its own members; the user's override
// them by key.
func arguments(env module.Env, h *engine.Host) string {
	clients, peers := module.EtcdURL(h.Host, facts.EtcdClientPort), module.EtcdURL(h.Host, facts.EtcdPeerPort)
	args := map[string]string{
		"name":                           h.Name,
		"data-dir":                       facts.DirEtcd,
		"listen-client-urls":             module.OwnEtcd() + "," + clients,
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

// optional names a path that a unit may do without: without it, the checks of the
// unit say what is wrong, and not that systemd could not set it up.
func optional(path string) string { return module.UnitMounts("-" + path) }

// logs are the directories of the files that a user has etcd write its log to: it
// makes others there when they are full.
func logs(args map[string]string) (dirs []string) {
	for to := range strings.SplitSeq(args["log-outputs"], ",") {
		if dir := optional(path.Dir(to)); path.IsAbs(to) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// lowPort reports whether a user has etcd listen on one of the first 1024 ports.
func lowPort(args map[string]string) bool {
	return slices.ContainsFunc([]string{"listen-metrics-urls", "listen-client-http-urls"}, func(key string) bool {
		return slices.ContainsFunc(strings.Split(args[key], ","), func(text string) bool {
			u, err := url.Parse(strings.TrimSpace(text))
			if err != nil {
				return false // etcd says what is wrong with it
			}
			port, err := strconv.Atoi(u.Port())
			return err == nil && port < 1024
		})
	})
}
