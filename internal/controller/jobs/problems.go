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
	awayTime = 10 * time.Second
)

// An observer remembers since when a Job has had the same problem.
type observer struct {
	problem string
	since   time.Time
}

// hasLasted reports whether a problem lasts longer than a time.
func (s *observer) hasLasted(problem string, limit time.Duration, now time.Time) bool {
	if s.problem != problem {
		s.problem, s.since = problem, now
	}
	return problem != "" && now.Sub(s.since) >= limit
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
	now := a.Now()
	if len(pods) == 0 {
		if why := describeFailure(job); why != "" {
			return why, nil
		}
		if !seen.hasLasted("no Pod", startTime, now) {
			return "", nil
		}
		return a.explainMissingPod(ctx, job)
	}
	pod := &pods[len(pods)-1]
	if why := describeEnd(pod); why != "" {
		return why, nil
	}
	if why := describeFailure(job); why != "" {
		return why, nil
	}
	if hasEnded(job) {
		return "its process has ended without a result", nil
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && slices.Contains(waitingReasons, w.Reason) && seen.hasLasted("container", startTime, now) {
			return joinText(w.Reason, w.Message), nil
		}
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && seen.hasLasted("schedule", startTime, now):
			return joinText("no node can run it", c.Message), nil
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && canRun(*pod) && isStarted(pod) &&
			seen.hasLasted("node", awayTime, now):
			return "node " + pod.Spec.NodeName + " does not answer", nil
		}
	}
	if !hasProblem(pod) {
		seen.problem = ""
	}
	return "", nil
}

// hasProblem reports whether a Pod has a state that findProblem observes.
func hasProblem(p *corev1.Pod) bool {
	waits := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && slices.Contains(waitingReasons, c.State.Waiting.Reason)
	})
	return waits || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Status == corev1.ConditionFalse && (c.Type == corev1.PodScheduled || c.Type == corev1.PodReady && isStarted(p))
	})
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
	var events corev1.EventList
	err := a.Client.List(ctx, &events, client.InNamespace(a.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID)})
	if err != nil {
		return "", err
	}
	for i := len(events.Items) - 1; i >= 0; i-- {
		if e := &events.Items[i]; e.Type == corev1.EventTypeWarning {
			return joinText(e.Reason, e.Message), nil
		}
	}
	return "it has no Pod", nil
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
