// Package testserver starts the real management server inside a test binary, on a temporary
// directory and a free port. Feature gates and metrics of its libraries belong to the process,
// so a test binary has one server, and each test has its own namespace:
//
//	var server *testserver.Server
//
//	func TestMain(m *testing.M) { os.Exit(testserver.Run(context.Background(), m, &server)) }
package testserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/datadir"
	"slipway.dev/slipway/internal/server/keys"
)

// stopTime limits the stop of a server.
const stopTime = 90 * time.Second

// A Server is a running server.
type Server struct {
	*controlplane.Server
	// Dir is its data directory, and Config its configuration.
	Dir    *datadir.Dir
	Config controlplane.Config
	// Admin is the configuration of the administrator's client, over TLS.
	Admin *rest.Config
}

// Run starts a server, runs the tests of a binary, and stops the server. It returns the exit
// code. change can change the configuration.
func Run(ctx context.Context, m interface{ Run() int }, server **Server, change ...func(*controlplane.Config)) int {
	root, err := os.MkdirTemp("", "slipwayd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(root)
	controlplane.RedirectLogs(newLog())
	s, err := Open(ctx, filepath.Join(root, "data"), change...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the test server:", err)
		return 1
	}
	*server = s
	code := m.Run()
	if err := s.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the test server:", err)
		return 1
	}
	return code
}

// newLog returns a log of warnings and errors.
func newLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Open starts a server on a data directory, which is made if it does not exist. change can
// change the configuration.
func Open(ctx context.Context, path string, change ...func(*controlplane.Config)) (_ *Server, err error) {
	log := newLog()
	dir, err := datadir.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Close())
		}
	}()
	fresh := dir.IsFresh()
	c := controlplane.Config{Dir: dir, Log: log}
	if c.Listener, err = controlplane.Listen(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if c.Keys, err = keys.Open(dir.Path("keys"), fresh); err != nil {
		return nil, err
	}
	address := c.Listener.Addr().String()
	if c.Certificates, err = certificates.Open(certificates.Options{
		Dir: dir.Path("pki"), Server: "https://" + address, Fresh: fresh, Log: log,
	}); err != nil {
		return nil, err
	}
	for _, f := range change {
		f(&c)
	}
	s.Config = c
	if s.Server, err = controlplane.Start(ctx, c); err != nil {
		return nil, err
	}
	if s.Admin, err = clientcmd.BuildConfigFromFlags("", c.Certificates.AdminKubeconfig()); err == nil {
		err = errors.Join(dir.MarkStarted(), dir.WriteHolder(address))
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	s.Admin.QPS = -1 // tests are not throttled
	return s, nil
}

func (s *Server) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return s.Stop(ctx)
}

// Close stops the server and closes its data directory.
func (s *Server) Close(ctx context.Context) error { return errors.Join(s.stop(ctx), s.Dir.Close()) }

// Client returns a client of the administrator.
func (s *Server) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Admin)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// NewNamespace returns a namespace for one test, which is deleted at its end.
func (s *Server) NewNamespace(t testing.TB) string {
	t.Helper()
	namespaces := s.Client(t).CoreV1().Namespaces()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	made, err := namespaces.Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := namespaces.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // a test can delete it
			t.Errorf("deleting the namespace of the test: %v", err)
		}
	})
	return made.Name
}
