package sandbox

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slipway.dev/slipway/internal/testutil/golden"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

var internetLAN = lan{pool: netip.MustParsePrefix("198.18.0.0/16"), prefix: netip.MustParsePrefix("198.18.7.0/24"), internet: true}

func TestInternetRules_MatchGolden(t *testing.T) {
	for file, guard := range map[string]bool{"internet": true, "internet-router": false} {
		rules, err := internetLAN.internetRules("eth0",
			guard, parseResolvers([]byte("nameserver ::1\nnameserver 127.0.0.53\n# nameserver 8.8.8.8\nnameserver 192.168.1.1 # router\n")))
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "testdata/"+file+".golden", rules)
	}
}

// TestInternet_ReachesOutOnly: the machines of a sandbox with --internet reach the networks of the
// host, under its address, but cannot be reached from there. After the sandbox is deleted,
// the host is unchanged, whether it forwards packets or not.
func TestInternet_ReachesOutOnly(t *testing.T) {
	requireroot.Need(t, "a network of its own")
	for name, router := range map[string]string{"a host": "0", "a router": "1"} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			go func() { // its thread ends with it, and takes network and mounts along
				defer close(done)
				runtime.LockOSThread()
				if err := ownHost(router); err != nil {
					t.Errorf("making a host: %v", err)
					return
				}
				testInternet(t, internetLAN)
			}()
			<-done
		})
	}
}

const (
	machineAddress = "198.18.7.2"
	privateAddress = "10.9.9.9"        // outside
	linkAddress    = "169.254.169.254" // outside
	uplinkAddress  = "203.0.113.1"
	outsideAddress = "203.0.113.9"
)

// ownHost gives this thread a network with a default route to another, called
// outside, and hides what sandboxes know and change of the real host.
func ownHost(forwards string) error {
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755") },
		func() error { return unix.Mount("tmpfs", "/proc/sys/fs/inotify", "tmpfs", 0, "mode=755") },
		func() error { return os.WriteFile("/proc/sys/fs/inotify/max_user_instances", []byte("128\n"), 0o644) },
		func() error { return os.WriteFile("/proc/sys/fs/inotify/max_user_watches", []byte("8192\n"), 0o644) },
		func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(forwards), 0) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return runIPCommands("netns add outside",
		"link set lo up", "link add wan0 type veth peer name eth0 netns outside",
		"addr add "+uplinkAddress+"/24 dev wan0", "link set wan0 up", "route add default via "+outsideAddress,
		"-n outside addr add "+outsideAddress+"/24 dev eth0", "-n outside link set eth0 up",
		"-n outside link set lo up", "-n outside addr add "+privateAddress+"/32 dev lo", "-n outside addr add "+linkAddress+"/32 dev lo",
		"-n outside route add "+internetLAN.prefix.String()+" via "+uplinkAddress)
}

// runIPCommands runs ip with each line.
func runIPCommands(lines ...string) error {
	for _, line := range lines {
		if _, err := runProgram(context.Background(), "", "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

func testInternet(t *testing.T, l lan) {
	// This route is kept, so that packets for a machine never leave the host.
	if err := l.keepPackets(t.Context()); err != nil {
		t.Error(err)
	}
	before := hostNow(t)
	up := func() error {
		return withHost(t.Context(), func(h *hostState) error { return l.bringUp(t.Context(), h) })
	}
	if err := up(); err != nil {
		t.Error(err)
		return
	}
	link := l.linkName(netip.MustParseAddr(machineAddress))
	err := runIPCommands("netns add machine", "link add "+link+" type veth peer name eth0 netns machine",
		"link set "+link+" master "+l.bridgeName()+" up",
		"-n machine addr add "+machineAddress+"/24 dev eth0", "-n machine link set eth0 up",
		"-n machine route add default via "+l.gatewayAddress().String())
	if err != nil {
		t.Error(err)
		return
	}
	made := hostNow(t)
	if err := up(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(made, hostNow(t)); d != "" {
		t.Errorf("the next start changes the host (-first +next):\n%s", d)
	}
	if from, err := seenFrom(t, "machine", "outside", outsideAddress); from != uplinkAddress {
		t.Errorf("a machine is seen outside as %q (%v), and not by the host's address", from, err)
	}
	if _, err := seenFrom(t, "", "outside", privateAddress); err != nil {
		t.Errorf("the host does not reach its private network: %v", err)
	}
	for _, address := range []string{privateAddress, linkAddress} {
		if from, err := seenFrom(t, "machine", "outside", address); err == nil {
			t.Errorf("a machine reaches %s, as %s", address, from)
		}
	}
	if from, err := seenFrom(t, "", "machine", machineAddress); from != l.gatewayAddress().String() {
		t.Errorf("the host is seen by a machine as %q (%v)", from, err)
	}
	if from, err := seenFrom(t, "outside", "machine", machineAddress); err == nil {
		t.Errorf("%s outside reaches a machine", from)
	}
	down := func() error {
		return withHost(t.Context(), func(h *hostState) error { return l.takeDown(t.Context(), h) })
	}
	for range 2 { // the second time there is nothing to do
		if err := down(); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(before, hostNow(t)); d != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", d)
	}
}

// seenFrom connects from a network to a server in another, "" being the host's,
// and answers by which address the server sees that.
func seenFrom(t *testing.T, client, server, address string) (string, error) {
	var l net.Listener
	var err error
	withinNetwork(t, server, func() { l, err = net.Listen("tcp", net.JoinHostPort(address, "0")) })
	if err != nil {
		return "", err
	}
	defer l.Close()
	patience := 10 * time.Second
	if client == "outside" || client == "machine" && address != outsideAddress {
		patience = 500 * time.Millisecond // what is dropped is not answered
	}
	var c net.Conn
	withinNetwork(t, client, func() { c, err = net.DialTimeout("tcp", l.Addr().String(), patience) })
	if err != nil {
		return "", err
	}
	defer c.Close()
	theirs, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer theirs.Close()
	from, _, err := net.SplitHostPort(theirs.RemoteAddr().String())
	return from, err
}

// withinNetwork runs f in the network with this name: its sockets belong to that
// network.
func withinNetwork(t *testing.T, network string, f func()) {
	if network == "" {
		f()
		return
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Error(err)
		return
	}
	defer home.Close()
	there, err := os.Open(filepath.Join("/run/netns", network))
	if err != nil {
		t.Error(err)
		return
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Error(err)
		return
	}
	f()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Error(err)
	}
}

// hostNow is all that a sandbox may change of its host.
func hostNow(t *testing.T) map[string]string {
	out := map[string]string{}
	links, err := net.Interfaces()
	for _, l := range links {
		out["links"] += l.Name + "\n"
	}
	for _, line := range []string{"nft list ruleset", "ip route", "ip rule"} {
		words := strings.Fields(line)
		text, rerr := runProgram(context.Background(), "", words[0], words[1:]...)
		// The kernel needs some time to detect the other end of the link.
		out[line], err = strings.ReplaceAll(text, "linkdown ", ""), errors.Join(err, rerr)
	}
	settings, gerr := filepath.Glob("/proc/sys/net/ipv4/conf/*/forwarding")
	settings = append(settings, "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/inotify/max_user_instances",
		"/proc/sys/fs/inotify/max_user_watches")
	for _, file := range settings {
		text, rerr := os.ReadFile(file)
		out[file], err = strings.TrimSpace(string(text)), errors.Join(err, rerr)
	}
	if _, serr := os.Stat(hostDir); serr == nil {
		out[hostDir] = "is there"
	}
	if err := errors.Join(err, gerr); err != nil {
		t.Error(err)
	}
	return out
}
