// Package etcdtest runs an etcd of several members in a test binary.
package etcdtest

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startTime limits the start of all members.
const startTime = time.Minute

// StartMembers starts an etcd with a number of members, without TLS, and returns their URLs. It ends
// with the test.
func StartMembers(t testing.TB, n int) (servers []string) {
	t.Helper()
	dir := t.TempDir()
	var configs []*embed.Config
	var all []string
	for i := range n {
		clients, peers := freeURL(t), freeURL(t)
		c := embed.NewConfig()
		c.Name, c.Dir = fmt.Sprintf("member-%d", i), filepath.Join(dir, fmt.Sprint(i))
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		configs, all, servers = append(configs, c), append(all, c.Name+"="+peers.String()), append(servers, clients.String())
	}
	var members []*embed.Etcd
	for _, c := range configs {
		c.InitialCluster = strings.Join(all, ",")
		e, err := embed.StartEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		members = append(members, e)
	}
	limit := time.After(startTime)
	for _, e := range members {
		select {
		case <-e.Server.ReadyNotify():
		case <-limit:
			t.Fatal("the members of etcd are not ready")
		}
	}
	return servers
}

// freeURL returns the URL of a port at which nothing listens.
func freeURL(t testing.TB) url.URL {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}
