//go:build linux

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/op"
)

// parseHosts reads a hosts file: what others' lines give the wanted names.
func parseHosts(text string, names []string) []op.Named {
	var out []op.Named
	ours := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "# BEGIN slipway "):
			ours = true
		case strings.HasPrefix(line, "# END slipway "):
			ours = false
		}
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if ours || len(f) < 2 {
			continue
		}
		for _, name := range f[1:] {
			entry := op.Named{Name: name, Address: f[0]}
			if slices.Contains(names, name) && !slices.Contains(out, entry) {
				out = append(out, entry)
			}
		}
	}
	return out
}

// resolver answers the file that kubeadm has the kubelet use: where
// systemd-resolved is at work, /etc/resolv.conf names itself alone.
func (s *session) resolver(ctx context.Context) *op.Resolver {
	r := &op.Resolver{Path: "/etc/resolv.conf"}
	if u, err := s.unit(ctx, "systemd-resolved.service"); err == nil && u.running() {
		r.Path = "/run/systemd/resolve/resolv.conf"
	}
	raw, err := bounded.ReadFile(s.path(r.Path), bounded.Config)
	if err != nil {
		r.Missing = errors.Is(err, fs.ErrNotExist)
		return r
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "nameserver" {
			r.Servers = append(r.Servers, f[1])
		}
	}
	return r
}

// firewalls answers what drops packets that nobody has let through.
func (s *session) firewalls(ctx context.Context) []string {
	var out []string
	for _, name := range []string{"firewalld", "ufw"} {
		u, err := s.unit(ctx, name+".service")
		if err != nil || !u.running() {
			continue
		}
		// ufw's unit is active whether or not ufw is enabled.
		if name == "ufw" && !strings.Contains(strings.ToLower(s.text("/etc/ufw/ufw.conf")), "enabled=yes") {
			continue
		}
		out = append(out, name)
	}
	if len(out) > 0 {
		return out // their chains are theirs
	}
	return droppingChains()
}

// droppingChains are the chains of nftables that drop what no rule of theirs
// has decided on; iptables keeps its own there, too.
func droppingChains() []string {
	n, err := openNFT()
	if err != nil {
		return nil
	}
	defer n.close()
	chains, err := n.chains()
	if err != nil {
		return nil
	}
	var out []string
	for _, c := range chains {
		if !c.base || c.policy == nfAccept {
			continue
		}
		family := fmt.Sprint(c.table.family)
		for name, number := range nftFamilies {
			if number == c.table.family {
				family = name
			}
		}
		out = append(out, fmt.Sprintf("nftables (chain %s of table %s %s)", c.name, family, c.table.name))
	}
	slices.Sort(out)
	return out
}
