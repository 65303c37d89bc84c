//go:build linux

package facts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/netfilter"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
)

// ParseHosts parses a hosts file: the entries of other software for the wanted names.
func ParseHosts(text string, names []string) []op.Named {
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

// readResolver returns the file that kubeadm makes the kubelet use: with systemd-resolved,
// /etc/resolv.conf has only its own address.
func readResolver(ctx context.Context, h *host.Host) *op.Resolver {
	r := &op.Resolver{Path: "/etc/resolv.conf"}
	if u, err := systemctl.ShowUnit(ctx, h, "systemd-resolved.service"); err == nil && u.IsRunning() {
		r.Path = "/run/systemd/resolve/resolv.conf"
	}
	raw, err := bounded.ReadFile(h.DiskPath(r.Path), bounded.Config)
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

// activeFirewalls returns what drops packets that are not explicitly allowed.
func activeFirewalls(ctx context.Context, h *host.Host) []string {
	var out []string
	for _, name := range []string{"firewalld", "ufw"} {
		u, err := systemctl.ShowUnit(ctx, h, name+".service")
		if err != nil || !u.IsRunning() {
			continue
		}
		// The ufw unit is active whether or not ufw is enabled.
		if name == "ufw" && !strings.Contains(strings.ToLower(h.ReadText("/etc/ufw/ufw.conf")), "enabled=yes") {
			continue
		}
		out = append(out, name)
	}
	if len(out) > 0 {
		return out // their chains belong to them
	}
	return DroppingChains()
}

// DroppingChains returns the nftables chains that drop packets without a matching rule;
// iptables also stores its chains there.
func DroppingChains() []string {
	n, err := netfilter.OpenNFT()
	if err != nil {
		return nil
	}
	defer n.Close()
	chains, err := n.ListChains()
	if err != nil {
		return nil
	}
	var out []string
	for _, c := range chains {
		if !c.Base || c.Policy == netfilter.PolicyAccept {
			continue
		}
		family := fmt.Sprint(c.Table.Family)
		for name, number := range netfilter.Families {
			if number == c.Table.Family {
				family = name
			}
		}
		out = append(out, fmt.Sprintf("nftables (chain %s of table %s %s)", c.Name, family, c.Table.Name))
	}
	slices.Sort(out)
	return out
}
