package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/status"
)

// largestCluster returns a cluster and its status when no node is ready, each with a long message.
func largestCluster(hosts int) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{}
	c.APIVersion, c.Kind, c.Name = v1alpha1.APIVersion, "Cluster", "bench"
	var nodes []v1alpha1.NodeStatus
	for i := range hosts {
		role := v1alpha1.RoleWorker
		if i == 0 {
			role = v1alpha1.RoleControlPlane
		}
		h := v1alpha1.Host{Name: fmt.Sprintf("h%05d", i+1), Address: fmt.Sprintf("10.64.%d.%d", i/250, i%250+1), Roles: []v1alpha1.Role{role}}
		c.Spec.Hosts = append(c.Spec.Hosts, h)
		nodes = append(nodes, v1alpha1.NodeStatus{
			Name: h.Name, InternalIP: h.Address, MachineID: strings.Repeat("0", 32), Roles: h.Roles, Version: "v1.37.1",
			Message: "KubeletNotReady: " + strings.Repeat("container runtime network not ready ", 20),
		})
	}
	c.Status = v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseRunning, Version: "v1.37.1", Operation: strings.Repeat("x", 63)}
	status.SetNodes(&c.Status, nodes)
	return c
}

// createCluster creates a Cluster in the API that the environment names.
func createCluster(ctx context.Context, c *v1alpha1.Cluster) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(variableKubeconfig))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// The status is not a part of a create.
	text, err := json.Marshal(map[string]any{
		"apiVersion": c.APIVersion, "kind": c.Kind, "metadata": map[string]any{"name": c.Name}, "spec": c.Spec,
	})
	if err != nil {
		return err
	}
	at := fmt.Sprintf("/apis/%s/namespaces/%s/clusters", v1alpha1.APIVersion, os.Getenv(variableNamespace))
	return client.CoreV1().RESTClient().Post().AbsPath(at).Body(text).Do(ctx).Error()
}
