package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"slipway.dev/slipway/api/v1alpha1"
)

const (
	// controllerTime limits the time until the controllers have accepted the object.
	controllerTime = time.Minute
	// controllerInterval is the time between two looks at the object.
	controllerInterval = 200 * time.Millisecond
)

// waitForControllers waits until the controllers of the API have accepted the object and show it as paused. An API without
// controllers, or with a problem of the object, must not get the hosts.
func (p *pass) waitForControllers(ctx context.Context) error {
	var seen *v1alpha1.Cluster
	var failed error
	err := wait.PollUntilContextTimeout(ctx, controllerInterval, controllerTime, true, func(ctx context.Context) (bool, error) {
		is, err := p.to.Objects.Load(ctx, p.cluster.Name)
		if failed = err; err != nil {
			return false, nil
		}
		if is == nil {
			return false, errors.New("the Cluster was deleted")
		}
		seen = is
		return describeCondition(is, "Paused") != "", nil
	})
	switch {
	case err == nil:
		return nil
	case !wait.Interrupted(err):
		return err
	case failed != nil:
		return fmt.Errorf("reading the Cluster: %w", failed)
	}
	if problem := describeCondition(seen, "Stalled"); problem != "" {
		return fmt.Errorf("the API refuses the Cluster: %s", problem)
	}
	return fmt.Errorf("the controllers of %s do not respond to the Cluster: check that the management server or the operator runs",
		p.to.Server)
}

// describeCondition returns the reason and the message of a condition that is true for the latest generation, "" otherwise.
func describeCondition(c *v1alpha1.Cluster, kind string) string {
	is := meta.FindStatusCondition(c.Status.Conditions, kind)
	if is == nil || is.Status != metav1.ConditionTrue || is.ObservedGeneration != c.Generation {
		return ""
	}
	return is.Reason + ": " + is.Message
}
