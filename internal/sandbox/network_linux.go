package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// rulePriority is the priority of the rule that keeps a sandbox's packets on the host:
// after the local table and before all others.
const rulePriority = "1980"

// lastMetric is the metric of a route with the lowest priority.
const lastMetric = "4294967295"

// A lan is the host's side of a sandbox's network.
type lan struct {
	pool, prefix netip.Prefix
	internet     bool
}

func (l lan) id() string          { return rangeID(l.prefix) }
func (l lan) bridge() string      { return "slw-" + l.id() }
func (l lan) gateway() netip.Addr { return nth(l.prefix, 1) }

// link returns the host's end of a machine's cable.
func (l lan) link(a netip.Addr) string {
	return fmt.Sprintf("%s-%d", l.bridge(), a.As4()[3])
}

// up creates everything that is missing; the host may have booted since.
func (l lan) up(ctx context.Context, host *hostState) error {
	if err := l.keepPackets(ctx); err != nil {
		return err
	}
	if err := host.raise("fs/inotify/max_user_instances", 8192, l.id()); err != nil {
		return fmt.Errorf("raising a limit: %w", err)
	}
	if err := host.raise("fs/inotify/max_user_watches", 524288, l.id()); err != nil {
		return fmt.Errorf("raising a limit: %w", err)
	}
	if !hasLink(l.bridge()) {
		if err := l.addBridge(ctx); err != nil {
			return errors.Join(err, l.removeBridge(ctx))
		}
	}
	if l.internet {
		if err := l.addInternet(ctx, host); err != nil {
			return err
		}
	} else if err := l.addRule(ctx); err != nil {
		return err
	}
	// A host that rejects forwarding tells a machine so at once; without this setting the
	// machine waits. The setting disappears with the bridge.
	return os.WriteFile("/proc/sys/net/ipv4/conf/"+l.bridge()+"/forwarding", []byte("1"), 0)
}

// keepPackets adds a route that drops packets for the pool on this host, whatever else is
// up. Every other route to the same network has precedence: the route of the bridge, if
// the sandbox uses the whole pool, and the host's own.
func (l lan) keepPackets(ctx context.Context) error {
	_, err := run(ctx, "", "ip", "route", "replace", "unreachable", l.pool.String(), "metric", lastMetric)
	return err
}

func (l lan) addBridge(ctx context.Context) error {
	lines := []string{
		fmt.Sprintf("link add %s address %s type bridge", l.bridge(), macOf(l.gateway())),
		fmt.Sprintf("link set %s addrgenmode none", l.bridge()),
		fmt.Sprintf("addr add %s/%d dev %s", l.gateway(), rangeBits, l.bridge()),
		fmt.Sprintf("link set %s up", l.bridge()),
	}
	_, err := run(ctx, strings.Join(lines, "\n"), "ip", "-batch", "-")
	return err
}

// addRule prevents the host from forwarding these packets.
func (l lan) addRule(ctx context.Context) error {
	rules, err := run(ctx, "", "ip", "rule", "show", "iif", l.bridge())
	if err != nil || strings.Contains(rules, l.bridge()) {
		return err
	}
	_, err = run(ctx, "", "ip", "rule", "add", "priority", rulePriority, "iif", l.bridge(), "unreachable")
	return err
}

// plug connects a machine: the other end becomes eth0 in the network namespace of the
// process.
func (l lan) plug(ctx context.Context, a netip.Addr, pid int, cut bool) error {
	// The kernel removes the old link some time after its namespace.
	if err := l.unplug(ctx, a); err != nil {
		return err
	}
	state := "up"
	if cut {
		state = "down"
	}
	lines := []string{
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", l.link(a), macOf(a), pid),
		fmt.Sprintf("link set %s addrgenmode none", l.link(a)),
		fmt.Sprintf("link set %s master %s %s", l.link(a), l.bridge(), state),
	}
	_, err := run(ctx, strings.Join(lines, "\n"), "ip", "-batch", "-")
	return err
}

func (l lan) unplug(ctx context.Context, a netip.Addr) error {
	if !hasLink(l.link(a)) {
		return nil
	}
	_, err := run(ctx, "", "ip", "link", "del", l.link(a))
	if !hasLink(l.link(a)) {
		return nil
	}
	return err
}

// setCable pulls or reconnects a machine's cable, if there is one.
func (l lan) setCable(ctx context.Context, a netip.Addr, state string) error {
	if !hasLink(l.link(a)) {
		return nil
	}
	_, err := run(ctx, "", "ip", "link", "set", l.link(a), state)
	return err
}

// inside returns the commands for the machine's side, for ip -batch.
func (l lan) inside(a netip.Addr) string {
	return strings.Join([]string{
		"link set lo up",
		fmt.Sprintf("addr add %s/%d dev eth0", a, rangeBits),
		"link set eth0 up",
		fmt.Sprintf("route add default via %s", l.gateway()),
	}, "\n")
}

// down removes everything except the route that keeps stray packets on the host.
func (l lan) down(ctx context.Context, host *hostState) error {
	errs := []error{l.removeBridge(ctx), l.removeInternet(ctx)}
	for {
		rules, err := run(ctx, "", "ip", "rule", "show", "iif", l.bridge())
		if err == nil && strings.Contains(rules, l.bridge()) {
			_, err = run(ctx, "", "ip", "rule", "del", "iif", l.bridge(), "unreachable")
		} else {
			errs = append(errs, err)
			break
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, host.release(l.id()))...)
}

func (l lan) removeBridge(ctx context.Context) error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	var errs []error
	for _, link := range links {
		if link.Name != l.bridge() && !strings.HasPrefix(link.Name, l.bridge()+"-") {
			continue
		}
		// The kernel may be faster, if the other end is gone.
		if _, err := run(ctx, "", "ip", "link", "del", link.Name); hasLink(link.Name) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func hasLink(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// usedRanges returns the networks with addresses or routes on this host.
func usedRanges(ctx context.Context) ([]netip.Prefix, error) {
	var used []netip.Prefix
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			used = append(used, p.Masked())
		}
	}
	routes, err := run(ctx, "", "ip", "-4", "route", "show", "table", "main", "type", "unicast")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(routes) {
		where, _, _ := strings.Cut(line, " ")
		if p, err := netip.ParsePrefix(where); err == nil {
			used = append(used, p)
		} else if a, err := netip.ParseAddr(where); err == nil {
			used = append(used, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return used, nil
}
