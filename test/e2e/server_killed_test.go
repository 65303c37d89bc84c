//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	kills          = 50
	maxRestart     = 5 * time.Second
	writersAtKills = 4
)

// TestServerKilled kills a server at random moments while it is written to. After each
// restart, all acknowledged writes exist, and a watch has seen them.
func TestServerKilled(t *testing.T) {
	data, address := t.TempDir()+"/data", freeAddress(t)
	random := rand.New(rand.NewPCG(22, uint64(time.Now().UnixNano())))
	w := &follower{seen: map[string]bool{}}
	var acknowledged []string
	var restarts []time.Duration
	for round := range kills {
		d := startServer(t, data, address)
		if round > 0 {
			restarts = append(restarts, d.ready)
			if text, err := os.ReadFile(d.log); err == nil && d.ready > 3*maxRestart {
				t.Logf("a restart took %s:\n%s", d.ready, textTail(string(text)))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.follow(ctx, t, d) })
		written := make([][]string, writersAtKills)
		for n := range written {
			wg.Go(func() { written[n] = d.writeUntilKilled(ctx, fmt.Sprintf("r%d-w%d", round, n)) })
		}
		<-time.After(time.Duration(random.IntN(1000)) * time.Millisecond)
		d.kill(t)
		cancel()
		wg.Wait()
		acknowledged = slices.Concat(append([][]string{acknowledged}, written...)...)
	}
	d := startServer(t, data, address)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { w.follow(ctx, t, d) })
	d.requireExisting(t, acknowledged)
	eventually(t, 30*time.Second, "the watch to have all writes", func() error { return w.missing(acknowledged) })
	cancel()
	wg.Wait()
	slices.Sort(restarts)
	median, slowest := restarts[len(restarts)/2], restarts[len(restarts)-1]
	t.Logf("figure: %d kills, %d acknowledged writes; restarts: median %.1f s, slowest %.1f s; "+
		"the watch listed %d times", kills, len(acknowledged), median.Seconds(), slowest.Seconds(), w.lists)
	if len(acknowledged) < kills {
		t.Errorf("only %d writes in %d rounds", len(acknowledged), kills)
	}
	if median > maxRestart {
		t.Errorf("a restart takes %s; the limit is %s", median, maxRestart)
	}
}

// writeUntilKilled creates ConfigMaps until the server is gone, and returns the names of the
// acknowledged ones.
func (d *daemon) writeUntilKilled(ctx context.Context, prefix string) (names []string) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		status, _, err := d.request(ctx, http.MethodPost, mapsPath, configMap(name))
		if err != nil || ctx.Err() != nil {
			return names
		}
		if status == http.StatusCreated {
			names = append(names, name)
		}
	}
}

// requireExisting fails the test for each acknowledged name that does not exist.
func (d *daemon) requireExisting(t *testing.T, names []string) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal(d.mustRequest(t, http.MethodGet, mapsPath, nil), &list); err != nil {
		t.Fatal(err)
	}
	existing := map[string]bool{}
	for _, o := range list.Items {
		existing[o.Metadata.Name] = true
	}
	for _, name := range names {
		if !existing[name] {
			t.Errorf("%s was acknowledged and does not exist", name)
		}
	}
}

// A follower watches ConfigMaps over restarts of the server, as clients of Kubernetes do. It
// continues from the last version that it has seen. If the server no longer has the changes
// since that version, the follower lists all objects and continues from the list.
type follower struct {
	mu      sync.Mutex
	version string
	seen    map[string]bool
	lists   int
}

// follow reads events until ctx or the server ends.
func (w *follower) follow(ctx context.Context, t *testing.T, d *daemon) {
	for ctx.Err() == nil {
		err := errTryAgain
		if w.version != "" || w.list(ctx, d) {
			err = w.watch(ctx, d)
		}
		if !errors.Is(err, errTryAgain) {
			if err != nil {
				t.Error(err)
			}
			return
		}
		select {
		case <-d.ended:
			return
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// errTryAgain is the error of a request that can be repeated.
var errTryAgain = errors.New("try again")

// A listedObject is the part of an object that the follower reads.
type listedObject struct {
	Message  string
	Code     int
	Metadata struct{ Name, ResourceVersion string }
}

// list adds all objects, and reports whether the server responded.
func (w *follower) list(ctx context.Context, d *daemon) bool {
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []listedObject
	}
	status, out, err := d.request(ctx, http.MethodGet, mapsPath, nil)
	if err != nil || status != http.StatusOK || json.Unmarshal(out, &list) != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	w.version = list.Metadata.ResourceVersion
	for _, o := range list.Items {
		w.seen[o.Metadata.Name] = true
	}
	return true
}

// watch reads events until the connection ends. Without a version afterwards, the server no
// longer has the changes, and the follower lists all objects.
func (w *follower) watch(ctx context.Context, d *daemon) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+d.address+mapsPath+"?watch=true&resourceVersion="+w.version, nil)
	if err != nil {
		return err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil // the server was killed before
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusGone:
		w.version = ""
		return errTryAgain
	case http.StatusTooManyRequests:
		return errTryAgain
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the watch from version %s gets %d", w.version, resp.StatusCode)
	}
	for events := json.NewDecoder(resp.Body); ; {
		var e struct {
			Type   string
			Object listedObject
		}
		if events.Decode(&e) != nil {
			return nil
		}
		if e.Type == "ERROR" && e.Object.Code == http.StatusGone {
			w.version = ""
			return errTryAgain
		}
		if e.Type == "ERROR" {
			return fmt.Errorf("the watch ends: %s", e.Object.Message)
		}
		w.mu.Lock()
		w.version = e.Object.Metadata.ResourceVersion
		w.seen[e.Object.Metadata.Name] = true
		w.mu.Unlock()
	}
}

// missing returns an error for names that the follower has not seen.
func (w *follower) missing(names []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, name := range names {
		if !w.seen[name] {
			errs = append(errs, fmt.Errorf("the watch has not seen %s", name))
		}
	}
	return errors.Join(errs[:min(len(errs), 10)]...)
}
