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

func (l lan) rangeID() string            { return rangeID(l.prefix) }
func (l lan) bridgeName() string         { return "slw-" + l.rangeID() }
func (l lan) gatewayAddress() netip.Addr { return nthAddress(l.prefix, 1) }

// linkName returns the host's end of a machine's cable.
func (l lan) linkName(a netip.Addr) string {
	return fmt.Sprintf("%s-%d", l.bridgeName(), a.As4()[3])
}

// bringUp creates everything that is missing; the host may have booted since.
func (l lan) bringUp(ctx context.Context, host *hostState) error {
	if err := l.keepPackets(ctx); err != nil {
		return err
	}
	if err := host.raiseSetting("fs/inotify/max_user_instances", 8192, l.rangeID()); err != nil {
		return fmt.Errorf("raising a limit: %w", err)
	}
	if err := host.raiseSetting("fs/inotify/max_user_watches", 524288, l.rangeID()); err != nil {
		return fmt.Errorf("raising a limit: %w", err)
	}
	if !hasLink(l.bridgeName()) {
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
	return os.WriteFile("/proc/sys/net/ipv4/conf/"+l.bridgeName()+"/forwarding", []byte("1"), 0)
}

// keepPackets adds a route that drops packets for the pool on this host, whatever else is
// up. Every other route to the same network has precedence: the route of the bridge, if
// the sandbox uses the whole pool, and the host's own.
func (l lan) keepPackets(ctx context.Context) error {
	_, err := runProgram(ctx, "", "ip", "route", "replace", "unreachable", l.pool.String(), "metric", lastMetric)
	return err
}

func (l lan) addBridge(ctx context.Context) error {
	lines := []string{
		fmt.Sprintf("link add %s address %s type bridge", l.bridgeName(), macOf(l.gatewayAddress())),
		fmt.Sprintf("link set %s addrgenmode none", l.bridgeName()),
		fmt.Sprintf("addr add %s/%d dev %s", l.gatewayAddress(), rangeBits, l.bridgeName()),
		fmt.Sprintf("link set %s up", l.bridgeName()),
	}
	_, err := runProgram(ctx, strings.Join(lines, "\n"), "ip", "-batch", "-")
	return err
}

// addRule prevents the host from forwarding these packets.
func (l lan) addRule(ctx context.Context) error {
	rules, err := runProgram(ctx, "", "ip", "rule", "show", "iif", l.bridgeName())
	if err != nil || strings.Contains(rules, l.bridgeName()) {
		return err
	}
	_, err = runProgram(ctx, "", "ip", "rule", "add", "priority", rulePriority, "iif", l.bridgeName(), "unreachable")
	return err
}

// plugMachine connects a machine: the other end becomes eth0 in the network namespace of the
// process.
func (l lan) plugMachine(ctx context.Context, a netip.Addr, pid int, cut bool) error {
	// The kernel removes the old link some time after its namespace.
	if err := l.unplugMachine(ctx, a); err != nil {
		return err
	}
	state := "up"
	if cut {
		state = "down"
	}
	lines := []string{
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", l.linkName(a), macOf(a), pid),
		fmt.Sprintf("link set %s addrgenmode none", l.linkName(a)),
		fmt.Sprintf("link set %s master %s %s", l.linkName(a), l.bridgeName(), state),
	}
	_, err := runProgram(ctx, strings.Join(lines, "\n"), "ip", "-batch", "-")
	return err
}

func (l lan) unplugMachine(ctx context.Context, a netip.Addr) error {
	if !hasLink(l.linkName(a)) {
		return nil
	}
	_, err := runProgram(ctx, "", "ip", "link", "del", l.linkName(a))
	if !hasLink(l.linkName(a)) {
		return nil
	}
	return err
}

// setCable pulls or reconnects a machine's cable, if there is one.
func (l lan) setCable(ctx context.Context, a netip.Addr, state string) error {
	if !hasLink(l.linkName(a)) {
		return nil
	}
	_, err := runProgram(ctx, "", "ip", "link", "set", l.linkName(a), state)
	return err
}

// insideCommands returns the commands for the machine's side, for ip -batch.
func (l lan) insideCommands(a netip.Addr) string {
	return strings.Join([]string{
		"link set lo up",
		fmt.Sprintf("addr add %s/%d dev eth0", a, rangeBits),
		"link set eth0 up",
		fmt.Sprintf("route add default via %s", l.gatewayAddress()),
	}, "\n")
}

// takeDown removes everything except the route that keeps stray packets on the host.
func (l lan) takeDown(ctx context.Context, host *hostState) error {
	errs := []error{l.removeBridge(ctx), l.removeInternet(ctx)}
	for {
		rules, err := runProgram(ctx, "", "ip", "rule", "show", "iif", l.bridgeName())
		if err == nil && strings.Contains(rules, l.bridgeName()) {
			_, err = runProgram(ctx, "", "ip", "rule", "del", "iif", l.bridgeName(), "unreachable")
		} else {
			errs = append(errs, err)
			break
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, host.releaseSettings(l.rangeID()))...)
}

func (l lan) removeBridge(ctx context.Context) error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing links: %w", err)
	}
	var errs []error
	for _, link := range links {
		if link.Name != l.bridgeName() && !strings.HasPrefix(link.Name, l.bridgeName()+"-") {
			continue
		}
		// The kernel may be faster, if the other end is gone.
		if _, err := runProgram(ctx, "", "ip", "link", "del", link.Name); hasLink(link.Name) {
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
	routes, err := runProgram(ctx, "", "ip", "-4", "route", "show", "table", "main", "type", "unicast")
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
