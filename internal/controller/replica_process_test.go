//go:build long

package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/admission"
	"slipway.dev/slipway/internal/hostclaims"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/controlplane/testserver"
	"slipway.dev/slipway/internal/store/kube"
)

// replicaVariable has the replicaOptions of a management server that the binary runs instead of its tests.
const replicaVariable = "SLIPWAYD_TEST_REPLICA"

// replicaOptions are the options of a management server in another process.
type replicaOptions struct {
	Data, Cache, Hosts, Namespace string
	Etcd                          []string
}

// runReplica runs a management server instead of the tests, until its standard input ends.
func runReplica() (code int, ran bool) {
	text := os.Getenv(replicaVariable)
	if text == "" {
		return 0, false
	}
	var o replicaOptions
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func (o replicaOptions) run() error {
	ctx := context.Background()
	controlplane.RedirectLogs(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	s, err := testserver.Open(ctx, o.Data, func(c *controlplane.Config) {
		c.Etcd = controlplane.ExternalEtcd{Servers: o.Etcd, Prefix: "/slipway"}
		c.ShareControllers = true
		c.Admission = &admission.Checker{Claims: hostclaims.NewIndex(time.Now), DefaultVersion: older}
		c.Controllers = o.runControllers
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the test
	return s.Close(ctx)
}

// runControllers runs the controllers of the server, as slipwayd does.
func (o replicaOptions) runControllers(ctx context.Context, client *rest.Config) error {
	dir, err := os.MkdirTemp(o.Data, "controllers-")
	if err != nil {
		return err
	}
	settings := kube.Config{
		Client: client, Namespace: o.Namespace, BackupDir: dir, TempDir: dir, WithoutArchive: true, PartsPerSecond: 1000,
	}
	store, err := kube.New(settings)
	if err != nil {
		return err
	}
	catalogue, err := release.Load("")
	if err != nil {
		return err
	}
	hosts := hostSocket{o.Hosts}
	return Run(ctx, Config{
		Client: client, Namespace: o.Namespace, FilesBases: []string{dir}, StopTime: 20 * time.Second,
		OpenRecords: func(string) (records.Backend, error) { return store, nil },
		Log:         slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Lifecycle: lifecycle.Config{
			Catalogue: catalogue, Cache: o.Cache, Connect: hosts.Connect, Dial: hosts.Dial, Now: time.Now, Server: "https://replicas",
		},
		Sharing: &Sharing{
			Namespace: controlplane.SystemNamespace, Group: manifests.MembersGroup, Identity: manifests.NewIdentity("replica"), Release: "devel",
		},
	})
}

// A replica is a management server in another process.
type replica struct {
	options replicaOptions
	command *exec.Cmd
	ended   chan error
	stdin   io.Closer
}

// startReplica starts a management server, and waits until it is ready.
func startReplica(t *testing.T, o replicaOptions) *replica {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{options: o, command: exec.Command(os.Args[0]), ended: make(chan error, 1)}
	r.command.Env = append(os.Environ(), replicaVariable+"="+string(text))
	r.command.Stderr = t.Output()
	stdout, err := r.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin, err = r.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() { // ends with the process
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			ready <- lines.Text()
		}
		close(ready)
		r.ended <- r.command.Wait()
	}()
	t.Cleanup(r.kill)
	select {
	case line := <-ready:
		if line != "ready" {
			t.Fatalf("a server has written %q, want ready", line)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("a server is not ready after three minutes")
	}
	return r
}

// kill kills the process and waits for its end. It can be called again.
func (r *replica) kill() {
	if r.command == nil {
		return
	}
	_ = r.command.Process.Signal(syscall.SIGKILL) // it may have ended
	<-r.ended
	r.command = nil
}

// admin returns the configuration of the administrator's client.
func (r *replica) admin(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(r.options.Data, "pki", "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Timeout = -1, 30*time.Second
	return config
}
