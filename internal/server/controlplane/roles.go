package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// rolesTime limits the wait for the rules of the roles.
const rolesTime = 30 * time.Second

// roleNames are the roles of Slipway, whose rules a controller collects.
var roleNames = []string{"slipway-viewer", "slipway-operator", "slipway-admin"}

// waitForRoles waits until the roles of Slipway have rules. Another server on the same etcd may
// have to collect them, so a role that is late is logged and does not end the start.
func (s *Server) waitForRoles(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	for _, name := range roleNames {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, rolesTime, true, func(ctx context.Context) (bool, error) {
			role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(role.Rules) > 0, nil
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			s.config.Log.Warn("a role has no rules yet", "role", name)
			return nil
		case err != nil:
			return fmt.Errorf("waiting for role %s: %w", name, err)
		}
	}
	return nil
}
