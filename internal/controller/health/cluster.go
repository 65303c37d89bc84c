package health

import (
	"cmp"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/lifecycle/savedstate"
)

// isProbed reports whether a cluster is probed: it was created, and it is not being deleted.
func isProbed(c *v1alpha1.Cluster) bool { return savedstate.IsCreated(c) && c.DeletionTimestamp == nil }

// isNew reports whether a cluster was not created yet, and is not being deleted.
func isNew(c *v1alpha1.Cluster) bool { return !savedstate.IsCreated(c) && c.DeletionTimestamp == nil }

// A cluster has the observations of a cluster.
type cluster struct {
	uid types.UID
	// probed reports whether probes are scheduled, and since is the time since when. The mutex of the prober protects
	// them, and next.
	probed bool
	since  time.Time
	// next is the kind of the next probe of the API.
	next work

	mu sync.Mutex
	// api is the latest answer of the API, at answered; nil if there was none. apiProblem is the reason of the
	// latest failure, "" after an answer.
	api        *inspect.APIReport
	answered   time.Time
	apiProblem string
	apiBreaker breaker
	// hosts is the latest result of the hosts, at asked; nil if there was none. hostsErr is the error of the
	// latest probe.
	hosts        *inspect.HealthReport
	asked        time.Time
	hostsErr     error
	hostsBreaker breaker
	// backups are the results of operations. lastEnd is the latest end of an operation.
	backups []madeBackup
	lastEnd time.Time

	// writing serialises the writes of the status.
	writing sync.Mutex
	// written has the values in the status since writtenAt.
	written   shown
	writtenAt time.Time
}

// A shown has the fields of a status that the prober sets.
type shown struct {
	Conditions []metav1.Condition // by type
	Summary    v1alpha1.ClusterSummary
}

// newCluster returns the state of a cluster, as its status has it.
func newCluster(c *v1alpha1.Cluster, now time.Time) *cluster {
	is := &cluster{uid: c.UID, since: now}
	for _, condition := range c.Status.Conditions {
		if isOurs(condition.Type) {
			is.written.Conditions = append(is.written.Conditions, condition)
		}
	}
	if s := c.Status.Summary; s != nil {
		is.written.Summary = *s.DeepCopy()
	}
	is.written.Summary.Drift = nil // another package shows it
	sortConditions(is.written.Conditions)
	return is
}

// addAPI adds a result of the API, and returns the time until the next probe.
func (c *cluster) addAPI(r *inspect.APIReport, t *Times, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Answers {
		c.api, c.answered, c.apiProblem = r, now, ""
	} else {
		c.apiProblem = r.Message
	}
	return c.apiBreaker.add(r.Answers, t.Period, t, now)
}

// addHosts adds a result of the hosts, and returns the time until the next probe.
func (c *cluster) addHosts(r *inspect.HealthReport, err error, t *Times, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hostsErr = err
	if err != nil {
		return c.hostsBreaker.add(false, t.HostsPeriod, t, now)
	}
	c.hosts, c.asked = r, now
	reached := slices.ContainsFunc(r.Hosts, func(h inspect.HostHealth) bool { return h.Problem == "" })
	return c.hostsBreaker.add(reached, t.HostsPeriod, t, now)
}

// maxFresh is the number of failures after which a probe reads the records with requests. Later, it uses the records in
// memory, which a watch keeps current.
const maxFresh = 1

// readsAPIFresh reports whether the next probe of the API reads the records with requests: it follows a first failure, for
// which the kubeconfig that was used may be the reason.
func (c *cluster) readsAPIFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apiProblem != "" && c.apiBreaker.failures <= maxFresh
}

// readsHostsFresh is readsAPIFresh for the hosts, of which some or all did not answer.
func (c *cluster) readsHostsFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hostsBreaker.failures > maxFresh {
		return false
	}
	return c.hostsErr != nil || c.hosts != nil && (c.hosts.Etcd.Message != "" ||
		slices.ContainsFunc(c.hosts.Hosts, func(h inspect.HostHealth) bool { return h.Problem != "" }))
}

// silence returns the time without an answer of the API.
func (c *cluster) silence(now time.Time) time.Duration {
	if c.api == nil {
		return now.Sub(c.since)
	}
	return now.Sub(c.answered)
}

// sortConditions sorts conditions by type.
func sortConditions(list []metav1.Condition) {
	slices.SortFunc(list, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
}
