//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxStatus limits the status of an object, in bytes.
const maxStatus = 64 << 10

// An apiUse has the resources that a run with records in an API has used.
type apiUse struct {
	Writes   map[string]int64 // to etcd, by resource
	Total    int64            // of Writes
	Revision int64            // by how much etcd's revision has grown
	Lasted   time.Duration    // the operation, without planning; 0 if the run had none
	Peak     int64            // memory of the server, in bytes
	CPU      time.Duration    // of the server
	// OperationStatus is the size of the Operation's status, ClusterStatus the size of the largest
	// status of a Cluster with so many hosts.
	OperationStatus, ClusterStatus int
}

// perSecond returns the writes to etcd in a second, on average.
func (f figure) perSecond() float64 {
	lasted := f.API.Lasted
	if lasted == 0 {
		lasted = f.Wall
	}
	return float64(f.API.Total) / lasted.Seconds()
}

// runWithServer runs a program whose records are in the server, as runTimed does, and records the use
// of the server.
func (l *lab) runWithServer(ctx context.Context, s *server, f *figure, home string, argv, env []string) (string, error) {
	if s == nil {
		return l.runTimed(ctx, f, home, argv, env)
	}
	if err := s.forgetPeak(); err != nil {
		return "", err
	}
	before, err := s.read(ctx)
	if err != nil {
		return "", err
	}
	said, err := l.runTimed(ctx, f, home, argv, env)
	if err != nil {
		return said, err
	}
	use := &apiUse{Writes: map[string]int64{}}
	after, err := s.read(ctx)
	if err != nil {
		return said, err
	}
	for resource, n := range after.Writes {
		if grown := n - before.Writes[resource]; grown > 0 {
			use.Writes[resource] = grown
			use.Total += grown
		}
	}
	use.Revision, use.CPU = after.Revision-before.Revision, after.CPU-before.CPU
	f.API = use
	if use.Peak, err = s.peak(); err != nil || f.Over || f.Again {
		return said, err
	}
	return said, s.readOperation(ctx, use)
}

// readOperation reads the operation of a run. It must have succeeded, without a failed host.
func (s *server) readOperation(ctx context.Context, use *apiUse) error {
	text, err := s.request(ctx, http.MethodGet, "/apis/slipway.dev/v1alpha1/namespaces/"+recordsNamespace+"/operations", "")
	if err != nil {
		return err
	}
	var list struct {
		Items []struct{ Status json.RawMessage }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("the API has %d operations, not 1", len(list.Items))
	}
	var status struct {
		State              string
		Failures           []json.RawMessage
		StartTime, EndTime time.Time
	}
	if err := json.Unmarshal(list.Items[0].Status, &status); err != nil {
		return err
	}
	use.OperationStatus, use.Lasted = len(list.Items[0].Status), status.EndTime.Sub(status.StartTime)
	switch {
	case status.State != "Succeeded" || len(status.Failures) > 0:
		return fmt.Errorf("the operation has the state %s and %d failures", status.State, len(status.Failures))
	case use.OperationStatus > maxStatus:
		return fmt.Errorf("the status of the operation has %d bytes", use.OperationStatus)
	}
	return nil
}

// measureClusterStatus saves the largest status of a cluster of n hosts, and returns its size.
func (l *lab) measureClusterStatus(ctx context.Context, s *server, n int, env []string) (int, error) {
	cmd := exec.CommandContext(ctx, l.Manager, "cluster-status", strconv.Itoa(n))
	cmd.Env = append(cmd.Environ(), env...)
	if err := runQuietly(cmd); err != nil {
		return 0, err
	}
	text, err := s.request(ctx, http.MethodGet, "/apis/slipway.dev/v1alpha1/namespaces/"+recordsNamespace+"/clusters/bench", "")
	if err != nil {
		return 0, err
	}
	var object struct{ Status json.RawMessage }
	if err := json.Unmarshal(text, &object); err != nil {
		return 0, err
	}
	switch size := len(object.Status); {
	case size == 0:
		return 0, errors.New("the Cluster has no status")
	case size > maxStatus:
		return 0, fmt.Errorf("the status of the Cluster has %d bytes", size)
	default:
		return size, nil
	}
}

// A comparison has the runs of Slipway with records in files and in the API, in the order in which
// they were measured.
type comparison struct {
	Hosts      int
	Again      bool
	Files, API []figure
}

// maxRatio is how much of the time with files a run with records in the API may take at most.
const maxRatio = 1.15

// maxPerSecond is how many writes to etcd an operation may make in a second at most, on average.
const maxPerSecond = 10

// printComparisons prints the figures of records in files and in the API.
func printComparisons(w io.Writer, all []comparison) {
	if len(all) == 0 {
		return
	}
	fmt.Fprint(w, "\nRecords in files and in the API of a server on this machine:\n\n"+
		"| hosts | run | rounds | files: least, median | API: least, median | ratio of least, of medians | manager, files | manager, API |"+
		" server: peak, CPU |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range all {
		files, api := sortByWall(c.Files), sortByWall(c.API)
		least, median := c.ratios()
		f, a := medianFigure(files), medianFigure(api)
		fmt.Fprintf(w, "| %d | %s | %d | %.2f s, %.2f s | %.2f s, %.2f s | %.2f, %.2f | %d MB, %.2f s | %d MB, %.2f s | %d MB, %.2f s |\n",
			c.Hosts, runName(c.Again), len(files), files[0].Wall.Seconds(), f.Wall.Seconds(), api[0].Wall.Seconds(), a.Wall.Seconds(),
			least, median, f.Peak/1e6, f.CPU.Seconds(), a.Peak/1e6, a.CPU.Seconds(), a.API.Peak/1e6, a.API.CPU.Seconds())
	}
	fmt.Fprint(w, "\n| hosts | run | writes to etcd | per second | by resource | growth of etcd's revision | status of Operation | "+
		"largest status of Cluster |\n|---:|---|---:|---:|---|---:|---:|---:|\n")
	for _, c := range all {
		a := medianFigure(slices.Clone(c.API))
		fmt.Fprintf(w, "| %d | %s | %d | %.1f | %s | %d | %s | %s |\n", c.Hosts, runName(c.Again), a.API.Total, a.perSecond(),
			describeWrites(a.API.Writes), a.API.Revision, describeSize(a.API.OperationStatus), describeSize(a.API.ClusterStatus))
	}
	fmt.Fprint(w, "\n| target | measured | |\n|---|---|---|\n")
	for _, v := range recordVerdicts(all) {
		v.print(w)
	}
}

func runName(again bool) string {
	if again {
		return "unchanged"
	}
	return "first"
}

func describeSize(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n) + " bytes"
}

func describeWrites(writes map[string]int64) string {
	var out []string
	for _, resource := range slices.Sorted(maps.Keys(writes)) {
		out = append(out, fmt.Sprintf("%s %d", resource, writes[resource]))
	}
	return strings.Join(out, ", ")
}

func sortByWall(figures []figure) []figure {
	return slices.SortedFunc(slices.Values(figures), func(a, b figure) int { return int(a.Wall - b.Wall) })
}

// ratios returns how long the API takes for each second of files: for the fastest runs, and for the
// medians.
func (c comparison) ratios() (least, median float64) {
	files, api := sortByWall(c.Files), sortByWall(c.API)
	return api[0].Wall.Seconds() / files[0].Wall.Seconds(), medianFigure(api).Wall.Seconds() / medianFigure(files).Wall.Seconds()
}

// recordVerdicts hold the largest number of hosts against the targets.
func recordVerdicts(all []comparison) (out []verdict) {
	for _, c := range all {
		if c.Hosts != all[len(all)-1].Hosts || c.Again {
			continue
		}
		_, median := c.ratios()
		a := medianFigure(slices.Clone(c.API))
		largest := max(a.API.OperationStatus, a.API.ClusterStatus)
		out = append(out,
			verdict{"records in the API: at most 15 % more time", fmt.Sprintf("%+.1f %%, %d hosts", 100*(median-1), c.Hosts), median <= maxRatio},
			verdict{
				fmt.Sprintf("at most %d writes to etcd a second for an operation, on average", maxPerSecond),
				fmt.Sprintf("%.1f, %d hosts", a.perSecond(), c.Hosts), a.perSecond() <= maxPerSecond,
			},
			verdict{"the status of an object: at most 64 KiB", fmt.Sprintf("%d bytes, %d hosts", largest, c.Hosts), largest <= maxStatus})
	}
	return out
}
