package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/testutil/smalldisk"
)

// spaceValue is the size of an object of the tests, in bytes.
const spaceValue = 256 << 10

// segmentSize is the size of a segment of etcd's log, in bytes.
const segmentSize = 8 << 20

// newValue returns an object that needs space.
func newValue(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "space"}},
		Data:       map[string]string{"value": strings.Repeat(name, spaceValue/len(name))},
	}
}

// isRefusedForSpace reports whether an error is the refusal of a write for which there is no
// room, with a time after which the client should try again.
func isRefusedForSpace(t *testing.T, err error) bool {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInsufficientStorage {
		return false
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds <= 0 || status.Status().Message == "" {
		t.Errorf("the refusal has no reason or no time: %+v", status.Status())
	}
	return true
}

// createValue creates an object that needs space. It tries again if the server is busy. The object
// can exist then: a write without a response can be stored.
func createValue(t *testing.T, maps corev1client.ConfigMapInterface, name string) error {
	t.Helper()
	return repeatIfBusy(t.Context(), func() error {
		_, err := maps.Create(t.Context(), newValue(name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // etcd can also apply the write that exceeds the quota
			return nil
		}
		return err
	})
}

// readValue reads an object. It tries again if the server is busy.
func readValue(t *testing.T, maps corev1client.ConfigMapInterface, name string) error {
	t.Helper()
	return repeatIfBusy(t.Context(), func() error {
		_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
}

// fillSpace creates objects until one is refused, and returns the names of the created ones.
func fillSpace(t *testing.T, maps corev1client.ConfigMapInterface, prefix string, most int) (names []string) {
	t.Helper()
	for i := range most {
		name := fmt.Sprintf("%s-%d", prefix, i)
		err := createValue(t, maps, name)
		if err == nil {
			names = append(names, name)
			continue
		}
		if !isRefusedForSpace(t, err) {
			t.Fatalf("creating object %d: %v", i, err)
		}
		t.Logf("write %d is refused: %v", i, err)
		return names
	}
	t.Fatalf("%d objects were created, and no write was refused", most)
	return nil
}

// deleteAll deletes objects, one by one.
func deleteAll(t *testing.T, maps corev1client.ConfigMapInterface, names []string) {
	t.Helper()
	for _, name := range names {
		err := repeatIfBusy(t.Context(), func() error { return maps.Delete(t.Context(), name, metav1.DeleteOptions{}) })
		if err != nil && !apierrors.IsNotFound(err) { // a deletion without a response can be stored
			t.Fatalf("deleting %s: %v", name, err)
		}
	}
}

// TestRobustQuota_RefusesWritesUntilThereIsRoom fills a small database: the condition, the metric
// and the warnings follow its size, writes are refused, and deletions let it accept writes again.
func TestRobustQuota_RefusesWritesUntilThereIsRoom(t *testing.T) {
	c := startChild(t, filepath.Join(t.TempDir(), "data"), "", serverOptions{
		Quota: controlplane.MinQuota, Compaction: 5 * time.Second, Defragment: 5 * time.Second,
	})
	warnings := &warningTexts{}
	config := c.config(t)
	config.WarningHandler = warnings
	client := kubernetes.NewForConfigOrDie(config)
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)

	names := growTo(t, c, maps, "growing", 65)
	eventually(t, "the condition of a growing database", func() error {
		return hasCondition(t.Context(), client, metav1.ConditionTrue)
	})
	quotaBytes := int(controlplane.MinQuota)
	eventually(t, "the log and the metrics of a growing database", func() error {
		quota, err := readMetric(t.Context(), client, "slipway_server_database_quota_bytes")
		used, usedErr := readMetric(t.Context(), client, "slipway_server_database_bytes")
		switch {
		case err != nil || usedErr != nil:
			return errors.Join(err, usedErr)
		case used < quotaBytes*6/10 || quota != quotaBytes:
			return fmt.Errorf("the metrics have %d of %d bytes", used, quota)
		case !strings.Contains(c.log.String(), "uses most of its quota"):
			return errors.New("the log has no message for 60 %")
		}
		return nil
	})
	if list := warnings.matching("etcd-quota"); len(list) > 0 {
		t.Errorf("responses have warnings already: %s", list[0])
	}
	names = append(names, growTo(t, c, maps, "large", 82)...)
	eventually(t, "the warning of an almost full database", func() error {
		if !strings.Contains(c.log.String(), "is almost full") {
			return errors.New("the log has no message")
		}
		return nil
	})
	names = append(names, fillSpace(t, maps, "full", 200)...)
	if len(warnings.matching("etcd-quota")) == 0 {
		t.Error("no response had a warning before the database was full")
	}
	if err := readValue(t, maps, names[0]); err != nil {
		t.Errorf("reading with a full database: %v", err)
	}
	begun := time.Now()
	deleteAll(t, maps, names[:len(names)*3/4])
	eventually(t, "writes after deletions", func() error { return createValue(t, maps, "after") })
	t.Logf("writes were accepted %s after the deletions began", time.Since(begun))
	eventually(t, "the condition after deletions", func() error {
		return hasCondition(t.Context(), client, metav1.ConditionFalse)
	})

	// Only old revisions now: compaction and defragmentation run on a timer.
	for range 60 {
		object, err := maps.Get(t.Context(), "after", metav1.GetOptions{})
		if err == nil {
			object.Labels["changed"] = strconv.FormatInt(time.Now().UnixNano(), 10)
			_, err = maps.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		if err != nil && !isRefusedForSpace(t, err) && !apierrors.IsConflict(err) && !isBusy(err) {
			t.Fatal(err)
		}
	}
	eventually(t, "a smaller database", func() error {
		b, err := readMetric(t.Context(), client, "slipway_server_database_bytes")
		if err == nil && b > quotaBytes*6/10 {
			err = fmt.Errorf("it has %d bytes", b)
		}
		return err
	})
	c.mustRun(t)
	c.stop(t)
}

// growTo creates objects until a part of the quota is used, in per cent. It returns their names.
func growTo(t *testing.T, c *child, maps corev1client.ConfigMapInterface, prefix string, part int64) (names []string) {
	t.Helper()
	for i := 0; databaseSize(t, c) < controlplane.MinQuota*part/100; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if err := createValue(t, maps, name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// etcdOf returns a client of the embedded etcd of a server, and its address.
func etcdOf(t *testing.T, c *child) (*clientv3.Client, string) {
	t.Helper()
	socket := "unix://" + filepath.Join(c.data, "etcd", "client.sock")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{socket}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return client, socket
}

// databaseSize returns the size of the database of a server.
func databaseSize(t *testing.T, c *child) int64 {
	t.Helper()
	client, socket := etcdOf(t, c)
	defer client.Close()
	status, err := client.Status(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	return status.DbSize
}

// A warningTexts collects the warnings of responses.
type warningTexts struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader adds a warning.
func (w *warningTexts) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// matching returns the warnings with a part.
func (w *warningTexts) matching(part string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.texts {
		if strings.Contains(text, part) {
			out = append(out, text)
		}
	}
	return out
}

// hasCondition returns an error unless the condition of the database has a status.
func hasCondition(ctx context.Context, client kubernetes.Interface, want metav1.ConditionStatus) error {
	conditions, err := controlplane.ReadConditions(ctx, client)
	if err != nil {
		return err
	}
	got := meta.FindStatusCondition(conditions, controlplane.DatabaseSpaceLow)
	if got == nil || got.Status != want {
		return fmt.Errorf("the condition is %+v", got)
	}
	return nil
}

// readMetric returns the value of a metric.
func readMetric(ctx context.Context, client kubernetes.Interface, name string) (int, error) {
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("metric %s is missing", name)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	return int(value), err
}

// TestRobustDisk_RefusesWritesUntilThereIsRoom fills a small disk, with objects and with other
// files. The server continues to run and to serve reads, starts on the full disk, and accepts
// writes again when there is room.
func TestRobustDisk_RefusesWritesUntilThereIsRoom(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "64m")
		data, listen := filepath.Join(dir, "data"), freeAddress(t)
		c := startChild(t, data, listen, serverOptions{})
		client := c.client(t)
		maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)

		names := fillSpace(t, maps, "disk", 400)
		t.Logf("%d objects of %d KiB; %s", len(names), spaceValue>>10, describeDisk(t, dir))
		c.mustRun(t)

		// Deletions make room on the disk too: unused space is returned.
		begun := time.Now()
		deleteAll(t, maps, names[:len(names)*3/4])
		eventually(t, "writes after deletions", func() error {
			c.mustRun(t)
			return createValue(t, maps, "after-deletions")
		})
		t.Logf("writes were accepted %s after the deletions began; %s", time.Since(begun), describeDisk(t, dir))

		// Another program fills the disk to the last byte.
		waitForReserve(t, data)
		other := filepath.Join(dir, "other")
		smalldisk.Fill(t, other, 0)
		t.Log(describeDisk(t, dir))
		for i := range 20 {
			if err := createValue(t, maps, fmt.Sprintf("refused-%d", i)); !isRefusedForSpace(t, err) {
				t.Fatalf("write %d to a full disk: %v", i, err)
			}
			if err := readValue(t, maps, "after-deletions"); err != nil {
				t.Fatalf("reading with a full disk: %v", err)
			}
			pause(t.Context(), 300*time.Millisecond)
			c.mustRun(t)
		}

		// A start with the full disk.
		c.kill()
		c = startChild(t, data, listen, serverOptions{})
		t.Logf("start with a full disk: %s", c.took)
		if err := readValue(t, maps, "after-deletions"); err != nil {
			t.Fatalf("reading after a start with a full disk: %v", err)
		}
		if err := createValue(t, maps, "refused"); !isRefusedForSpace(t, err) {
			t.Errorf("a write after a start with a full disk: %v", err)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		eventually(t, "writes with room on the disk", func() error {
			c.mustRun(t)
			return createValue(t, maps, "after")
		})
		c.stop(t)
	})
}

// TestRobustDisk_ContinuesAfterStartWithFullDisk starts a server with a full disk, after a kill
// and after a stop. With room, the server continues beyond the current segment of etcd's log.
func TestRobustDisk_ContinuesAfterStartWithFullDisk(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		for _, tc := range []struct {
			name string
			end  func(t *testing.T, c *child)
		}{
			{"killed", func(t *testing.T, c *child) {
				c.kill()
				// Each second segment has this name until it is used.
				wal := filepath.Join(c.data, "etcd", "member", "wal")
				if err := os.Rename(filepath.Join(wal, "0.tmp"), filepath.Join(wal, "1.tmp")); err != nil {
					t.Fatal(err)
				}
			}},
			{"stopped", func(t *testing.T, c *child) { c.stop(t) }},
		} {
			t.Run(tc.name, func(t *testing.T) {
				smalldisk.Mount(t, dir, "128m")
				data, other := filepath.Join(dir, "data"), filepath.Join(dir, "other")
				c := startChild(t, data, "", serverOptions{})
				waitForReserve(t, data)
				tc.end(t, c)
				smalldisk.Fill(t, other, 0)
				c = startChild(t, data, "", serverOptions{})
				t.Logf("start with a full disk: %s; %s", c.took, describeDisk(t, dir))
				if err := os.Remove(other); err != nil {
					t.Fatal(err)
				}
				useSegment(t, c.client(t).CoreV1().ConfigMaps(metav1.NamespaceDefault))
				c.mustRun(t)
				c.stop(t)
			})
		}
	})
}

// waitForReserve waits until the database of a server has reserved space.
func waitForReserve(t *testing.T, data string) {
	t.Helper()
	eventually(t, "reserved space", func() error {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(data, "etcd", "member", "snap", "db"), &st); err != nil {
			return err
		}
		if room := st.Blocks*512 - st.Size; room < 4<<20 {
			return fmt.Errorf("%d bytes are reserved", room)
		}
		return nil
	})
}

// useSegment writes until etcd needs another segment of its log.
func useSegment(t *testing.T, maps corev1client.ConfigMapInterface) {
	t.Helper()
	value := newValue("log")
	for i := range segmentSize/spaceValue + 1 {
		value.Data["change"] = strconv.Itoa(i)
		err := repeatIfBusy(t.Context(), func() error {
			_, err := maps.Update(t.Context(), value, metav1.UpdateOptions{})
			if apierrors.IsNotFound(err) {
				_, err = maps.Create(t.Context(), value, metav1.CreateOptions{})
			}
			return err
		})
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
}

// TestRobustDisk_EndsServerThatCannotWrite writes past the guard until the disk is full: the
// database cannot write, so the server ends with the reason. With room, it starts again, and has
// all acknowledged writes.
func TestRobustDisk_EndsServerThatCannotWrite(t *testing.T) {
	smalldisk.RunApart(t, func(t *testing.T, dir string) {
		smalldisk.Mount(t, dir, "128m")
		other := filepath.Join(dir, "other")
		if err := os.WriteFile(other, make([]byte, 48<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(dir, "data")
		c := startChild(t, data, "", serverOptions{})
		client, _ := etcdOf(t, c)
		written := writeUntilEnd(t, c, client)
		begun := time.Now()
		limit := time.NewTimer(brokenTime)
		defer limit.Stop()
		select {
		case <-c.ended:
		case <-limit.C:
			t.Fatalf("the server has not ended\n%s", c.log)
		}
		t.Logf("the server ended %s after the last write: %v", time.Since(begun), c.end)
		if c.end == nil || !strings.Contains(c.log.String(), "no space left on device") {
			t.Errorf("the reason is missing: %v\n%s", c.end, c.log)
		}
		if err := errors.Join(client.Close(), os.Remove(other)); err != nil {
			t.Fatal(err)
		}
		c = startChild(t, data, "", serverOptions{})
		client, _ = etcdOf(t, c)
		defer client.Close()
		found, err := client.Get(t.Context(), "/outside/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || found.Count < int64(written) {
			t.Errorf("%d of %d writes are there: %v", found.Count, written, err)
		}
		c.stop(t)
	})
}

// writeUntilEnd writes to the database of a server until the server has ended, and returns the
// number of acknowledged writes.
func writeUntilEnd(t *testing.T, c *child, client *clientv3.Client) (written int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), brokenTime)
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
	}()
	watching.Go(func() {
		select {
		case <-c.ended:
			cancel()
		case <-ctx.Done():
		}
	})
	for value := strings.Repeat("v", 1<<20); ctx.Err() == nil; {
		_, err := client.Put(ctx, fmt.Sprintf("/outside/%d", written), value)
		if err == nil {
			written++
			continue
		}
		t.Logf("write %d: %v", written, err)
		pause(ctx, attemptPause) // the server ends, or is busy
	}
	return written
}

// describeDisk returns the free space of a disk, for the log of a test.
func describeDisk(t *testing.T, dir string) string {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d of %d KiB of the disk are free", int64(st.Bavail)*st.Bsize>>10, int64(st.Blocks)*st.Bsize>>10)
}
