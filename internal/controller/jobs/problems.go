package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Times after which a state of a Pod is a problem. All are below a minute.
const (
	// startTime is the time until a Pod must exist, have a node, and have its image.
	startTime = 40 * time.Second
	// awayTime is how long the container of a Pod can run without an answer of its node.
	awayTime = 2 * time.Second
)

// An observer remembers since when a Job has had the same problem.
type observer struct {
	problem string
	since   time.Time
	isAway  bool // the node of the Pod does not answer
}

// hasLasted notes a problem, and reports whether it has lasted for a time.
func (s *observer) hasLasted(problem string, limit time.Duration, now time.Time) bool {
	if s.problem != problem {
		s.problem, s.since = problem, now
	}
	return now.Sub(s.since) >= limit
}

// waitingReasons are reasons of a container that does not start, which can end only with a change.
var waitingReasons = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError",
	"RunContainerError", "CrashLoopBackOff",
}

// findProblem returns why a Job cannot do its work, "" if it can.
func (a *attempt) findProblem(ctx context.Context, job *batchv1.Job, seen *observer) (string, error) {
	pods, err := a.listPods(ctx, job)
	if err != nil {
		return "", err
	}
	var pod *corev1.Pod // the latest
	if n := len(pods); n > 0 {
		pod = &pods[n-1]
		if why := describeEnd(pod); why != "" {
			return why, nil
		}
	}
	if why := describeFailure(job); why != "" {
		return why, nil
	}
	if hasEnded(job) {
		return "its process has ended without a result", nil
	}
	if isSuspended(job) {
		return "it was suspended", nil
	}
	now := a.Now()
	if pod == nil {
		if !seen.hasLasted("no Pod", startTime, now) {
			return "", nil
		}
		return a.explainMissingPod(ctx, job)
	}
	name, limit, why := findPodProblem(pod)
	switch {
	case name == "":
		seen.problem = ""
		return "", nil
	case !seen.hasLasted(name, limit, now):
		return "", nil
	case name == problemNode:
		seen.isAway = true
	case name == problemStart:
		return a.explainStart(ctx, pod, seen)
	}
	return why, nil
}

// Problems of a Pod that can end.
const (
	problemContainer = "container"
	problemSchedule  = "schedule"
	problemNode      = "node"
	problemStart     = "start"
)

// findPodProblem returns the name of a problem of a Pod, the time after which it counts, and its reason.
func findPodProblem(pod *corev1.Pod) (name string, limit time.Duration, why string) {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && slices.Contains(waitingReasons, w.Reason) {
			return problemContainer, startTime, joinText(w.Reason, w.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionFalse:
		case c.Type == corev1.PodScheduled:
			return problemSchedule, startTime, joinText("no node can run it", c.Message)
		case c.Type == corev1.PodReady && canRun(*pod) && isStarted(pod):
			return problemNode, awayTime, describeAway(pod)
		}
	}
	if pod.Spec.NodeName != "" && canRun(*pod) && !isStarted(pod) {
		return problemStart, startTime, ""
	}
	return "", 0, ""
}

func describeAway(p *corev1.Pod) string { return "node " + p.Spec.NodeName + " does not answer" }

// explainStart returns why the container of a Pod with a node does not start, "" while its image can be on the way.
func (a *attempt) explainStart(ctx context.Context, pod *corev1.Pod, seen *observer) (string, error) {
	node := new(corev1.Node)
	err := a.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return "", err
	}
	isReady := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case err != nil || !isReady:
		seen.isAway = true
		return describeAway(pod), nil
	case pod.DeletionTimestamp != nil:
		return "its Pod is being deleted", nil
	}
	return a.findWarning(ctx, string(pod.UID))
}

// isStarted reports whether a container of a Pod runs, by the latest answer of its node.
func isStarted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// canRun reports whether the process of a Pod can run.
func canRun(p corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// describeFailure returns why a Job has failed, "" for another state.
func describeFailure(j *batchv1.Job) string {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return joinText(c.Reason, c.Message)
		}
	}
	return ""
}

// describeEnd returns why a Pod has failed, "" for another state.
func describeEnd(p *corev1.Pod) string {
	if p.Status.Phase != corev1.PodFailed {
		return ""
	}
	if p.Status.Reason != "" {
		return joinText(p.Status.Reason, p.Status.Message) // Evicted, DeadlineExceeded, NodeLost
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return joinText(fmt.Sprintf("its process has ended with code %d (%s)", t.ExitCode, t.Reason), lastLine(t.Message))
		}
	}
	return "its Pod has failed"
}

// explainMissingPod returns why a Job has no Pod: for example, a quota.
func (a *attempt) explainMissingPod(ctx context.Context, job *batchv1.Job) (string, error) {
	why, err := a.findWarning(ctx, string(job.UID))
	if err == nil && why == "" {
		why = "it has no Pod"
	}
	return why, err
}

// findWarning returns the latest warning about an object, "" if there is none.
func (a *attempt) findWarning(ctx context.Context, uid string) (string, error) {
	var events corev1.EventList
	err := a.Client.List(ctx, &events, client.InNamespace(a.Namespace), client.MatchingFields{"involvedObject.uid": uid})
	if err != nil {
		return "", err
	}
	slices.SortFunc(events.Items, func(x, y corev1.Event) int { return x.LastTimestamp.Compare(y.LastTimestamp.Time) })
	for i := len(events.Items) - 1; i >= 0; i-- {
		if e := &events.Items[i]; e.Type == corev1.EventTypeWarning {
			return joinText(e.Reason, e.Message), nil
		}
	}
	return "", nil
}

// listPods returns the Pods of a Job, oldest first.
func (a *attempt) listPods(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := a.Client.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})
	slices.SortFunc(list.Items, func(x, y corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return list.Items, err
}

// joinText joins a reason and a message.
func joinText(reason, message string) string {
	return strings.TrimSuffix(reason+": "+strings.TrimSpace(message), ": ")
}

// lastLine returns the last line of a text.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
