package sandbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"text/template"
)

//go:embed templates/internet.nft.tmpl
var internetTemplate embed.FS

func (l lan) tableName() string { return "slipway-" + l.rangeID() }

// addInternet gives the machines internet access with the host's address. Only the two
// links forward packets; the host does not become a router.
func (l lan) addInternet(ctx context.Context, host *hostState) error {
	uplink, err := defaultLink(ctx)
	if err != nil {
		return err
	}
	forward := "net/ipv4/conf/" + uplink + "/forwarding"
	if err := host.raiseSetting(forward, 1, l.rangeID()); err != nil {
		return fmt.Errorf("forwarding packets of %s: %w", uplink, err)
	}
	// A host that was not a router does not become one for others.
	conf, err := hostResolvConf()
	if err != nil {
		return err
	}
	rules, err := l.internetRules(uplink, host.Settings[forward] != nil, parseResolvers(conf))
	if err != nil {
		return err
	}
	_, err = runProgram(ctx, rules, "nft", "-f", "-")
	return err
}

// internetRules returns the packet filter rules that let packets of the machines out and
// answers in. In private and link-local networks the machines only reach the resolvers,
// by DNS. With guard, packets of other hosts are not forwarded from the uplink.
func (l lan) internetRules(uplink string, guard bool, resolvers []netip.Addr) (string, error) {
	t, err := template.ParseFS(internetTemplate, "templates/internet.nft.tmpl")
	if err != nil {
		return "", err
	}
	var rules strings.Builder
	err = t.Execute(&rules, map[string]any{
		"Table": l.tableName(), "Bridge": l.bridgeName(), "Range": l.prefix.String(), "Uplink": uplink, "Guard": guard, "Resolvers": resolvers,
	})
	return rules.String(), err
}

// hostResolvConf returns the resolvers of this host, for machines.
func hostResolvConf() ([]byte, error) {
	// Machines cannot reach a resolver at the host's loopback address; systemd stores the
	// real list there.
	for _, path := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		b, err := os.ReadFile(path)
		if err == nil {
			return b, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, refuseWith(IDNoInternet, "this host has no /etc/resolv.conf", "run the command without --internet")
}

// parseResolvers returns the IPv4 resolvers in a resolv.conf.
func parseResolvers(conf []byte) (all []netip.Addr) {
	for line := range strings.Lines(string(conf)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil && a.Is4() && !a.IsLoopback() {
			all = append(all, a)
		}
	}
	return all
}

func (l lan) removeInternet(ctx context.Context) error {
	if _, err := exec.LookPath("nft"); err != nil || !l.internet {
		return nil
	}
	_, err := runProgram(ctx, "", "nft", "delete", "table", "ip", l.tableName())
	if _, gone := runProgram(ctx, "", "nft", "list", "table", "ip", l.tableName()); gone != nil {
		return nil
	}
	return err
}

// defaultLink returns the link of the host's default route.
func defaultLink(ctx context.Context) (string, error) {
	out, err := runProgram(ctx, "", "ip", "-4", "route", "show", "default")
	if err != nil {
		return "", err
	}
	words := strings.Fields(out)
	for i, w := range words {
		if w == "dev" && i+1 < len(words) {
			return words[i+1], nil
		}
	}
	return "", refuseWith(IDNoInternet, "this host has no default route", "run the command without --internet")
}
