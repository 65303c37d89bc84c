// Client runs during the changes of scenarios. It writes objects through an endpoint, each
// over a separate connection, reads each object back over a permanent connection, and
// watches all objects as a controller does. When it is stopped, it prints its observations
// as JSON. It sends no request twice.
//
//	client KUBECONFIG LABEL OUTPUT
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	pace      = 50 * time.Millisecond // between two writes
	atMost    = 5 * time.Second       // for a request
	lateEvent = time.Minute           // for what was written to be seen by the watch
	told      = 20                    // failures that are reported
	namespace = metav1.NamespaceDefault
)

// Seen is the report of the client.
type Seen struct {
	// Written are the names whose write was acknowledged.
	Written []string
	// Read is the number of objects that were read back. Unread lists objects that the API
	// did not find.
	Read   int
	Unread []string
	// Unwatched lists objects that the watch did not report.
	Unwatched []string
	// Writing, Reading and Watching are the longest times without a success, in
	// seconds.
	Writing, Reading, Watching float64
	// Failures is how many requests failed, and Failed how the last ones did.
	Failures int
	Failed   []string
}

// A pulse is the longest time between two successes.
type pulse struct {
	last    time.Time
	longest time.Duration
}

func (p *pulse) recordSuccess() {
	p.finishGap()
	p.last = time.Now()
}

// finishGap counts the time since the last one, too.
func (p *pulse) finishGap() {
	if !p.last.IsZero() {
		p.longest = max(p.longest, time.Since(p.last))
	}
}

func main() {
	if err := runClient(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runClient(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: client KUBECONFIG LABEL OUTPUT")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out, err := os.OpenFile(args[2], os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	config.QPS = -1 // the pace is its own
	seen, err := watchAndWrite(ctx, config, args[1], out)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(seen); err != nil {
		return err
	}
	return out.Close()
}

// watchAndWrite does so until the context ends. The first success is said on
// ready by an empty line.
func watchAndWrite(ctx context.Context, config *rest.Config, label string, ready io.Writer) (*Seen, error) {
	watching, _, err := newClient(config)
	if err != nil {
		return nil, err
	}
	writing, hangUp, err := newClient(config)
	if err != nil {
		return nil, err
	}
	reading, _, err := newClient(config)
	if err != nil {
		return nil, err
	}
	w := newWatch(watching, label)
	end := make(chan struct{})
	defer close(end)
	go w.informer.Run(end)

	seen, writes, reads := &Seen{}, pulse{}, pulse{}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 1; ctx.Err() == nil; n++ {
		name := label + "-" + strconv.Itoa(n)
		err := writeObject(writing, label, name)
		hangUp()
		if err != nil {
			seen.recordFailure(err)
		} else {
			writes.recordSuccess()
			w.recordWritten(name)
			if seen.Written = append(seen.Written, name); len(seen.Written) == 1 {
				_, _ = fmt.Fprintln(ready)
			}
			switch there, err := readObject(reading, name); {
			case err != nil:
				seen.recordFailure(err)
			case !there:
				seen.Unread = append(seen.Unread, name)
			default:
				seen.Read++
				reads.recordSuccess()
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	writes.finishGap()
	reads.finishGap()
	seen.Unwatched = w.listUnseen(lateEvent)
	seen.Writing, seen.Reading, seen.Watching = writes.longest.Seconds(), reads.longest.Seconds(), w.pulse.longest.Seconds()
	return seen, nil
}

// newClient returns a client with separate connections, and a function that closes its
// idle connections.
func newClient(config *rest.Config) (api kubernetes.Interface, hangUp func(), err error) {
	own := rest.CopyConfig(config)
	own.Dial = (&net.Dialer{Timeout: atMost}).DialContext // without one all would share theirs
	if own.CAFile != "" {
		own.Transport, own.TLSClientConfig = newTransport(own.CAFile, own.Dial), rest.TLSClientConfig{}
		own.Dial = nil
	}
	c, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, nil, err
	}
	api, err = kubernetes.NewForConfigAndClient(own, c)
	return api, func() { utilnet.CloseIdleConnectionsFor(c.Transport) }, err
}

// newTransport reads whom it trusts for each connection. This library's own transport
// does so every five minutes.
func newTransport(file string, dial func(context.Context, string, string) (net.Conn, error)) http.RoundTripper {
	return utilnet.SetTransportDefaults(&http.Transport{
		DialContext: dial,
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, // it is verified below
			VerifyConnection: func(c tls.ConnectionState) error {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				pool := x509.NewCertPool()
				pool.AppendCertsFromPEM(text)
				_, err = c.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: c.ServerName})
				return err
			},
		},
	})
}

func (s *Seen) recordFailure(err error) {
	s.Failures++
	s.Failed = append(s.Failed, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
	s.Failed = s.Failed[max(0, len(s.Failed)-told):]
}

func writeObject(api kubernetes.Interface, label, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	_, err := api.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"written-by": label}},
	}, metav1.CreateOptions{})
	return err
}

func readObject(api kubernetes.Interface, name string) (there bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), atMost)
	defer cancel()
	_, err = api.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// A watch is an informer, as in controllers. It receives the names of the written objects.
type watch struct {
	informer cache.SharedIndexInformer

	mu    sync.Mutex
	await map[string]bool // written, and not seen
	early map[string]bool // seen before the write was acknowledged
	pulse pulse
	none  chan struct{} // has one when nothing is awaited
}

func newWatch(api kubernetes.Interface, label string) *watch {
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "written-by=" + label })
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace), only)
	w := &watch{
		informer: factory.Core().V1().ConfigMaps().Informer(), await: map[string]bool{},
		early: map[string]bool{}, none: make(chan struct{}, 1),
	}
	_, _ = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			w.recordSeen(cm.Name)
		}
	}})
	return w
}

func (w *watch) recordSeen(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pulse.recordSuccess()
	if !w.await[name] {
		w.early[name] = true
	}
	delete(w.await, name)
	if len(w.await) == 0 {
		select {
		case w.none <- struct{}{}:
		default:
		}
	}
}

func (w *watch) recordWritten(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.early[name] {
		w.await[name] = true
	}
	delete(w.early, name)
}

// listUnseen returns the objects that the watch did not report, after a wait for the last
// of them.
func (w *watch) listUnseen(patience time.Duration) (names []string) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		w.mu.Lock()
		names = names[:0]
		for name := range w.await {
			names = append(names, name)
		}
		w.mu.Unlock()
		if len(names) == 0 {
			return nil
		}
		select {
		case <-w.none:
		case <-timer.C:
			return names
		}
	}
}
