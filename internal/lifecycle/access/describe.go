package access

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/spec/live"
)

// Describe describes a running kubeadm cluster as a cluster file. It queries only the
// API of the kubeconfig.
func (a *Access) Describe(ctx context.Context, kubeconfig []byte, o live.Options) (*live.Description, error) {
	client, err := kube.New(kubeconfig, nil, kube.Options{})
	if err != nil {
		return nil, diag.Refuse(idKubeconfigUnusable, err.Error(), "use another file with --kubeconfig")
	}
	defer client.Close()
	state, err := observeCluster(ctx, client)
	var said *kube.Error
	if errors.As(err, &said) && ctx.Err() == nil {
		return nil, diag.Refuse(idClusterUnreadable, err.Error(), "")
	}
	if err != nil {
		return nil, err
	}
	o.Default = a.c.Catalogue.DefaultVersion()
	o.Supported = func(version string) error {
		_, err := a.c.Catalogue.ResolveVersion(version)
		return err
	}
	return live.Describe(state, o)
}

// observeCluster reads the configuration that a cluster keeps in its API.
func observeCluster(ctx context.Context, client *kube.Client) (state live.State, err error) {
	value := func(namespace, name, key string) []byte {
		if err != nil {
			return nil
		}
		var cm *corev1.ConfigMap
		if cm, err = client.ConfigMaps().Get(ctx, namespace, name); cm == nil {
			return nil
		}
		if text, ok := cm.Data[key]; ok {
			return []byte(text)
		}
		return nil
	}
	const system = "kube-system"
	state.Cluster = value(system, "kubeadm-config", "ClusterConfiguration")
	if err == nil && state.Cluster == nil {
		return state, diag.Refuse(idNotKubeadm, "the cluster has no kubeadm configuration (ConfigMap kube-system/kubeadm-config)",
			"use this command for kubeadm clusters only: made by Slipway, KubeKey, kubespray or manually with kubeadm")
	}
	state.Kubelet = value(system, "kubelet-config", "kubelet")
	state.Proxy = value(system, "kube-proxy", "config.conf")
	state.Corefile = string(value(system, "coredns", "Corefile"))
	for _, namespace := range []string{"kube-flannel", system} {
		if state.Flannel == nil {
			state.Flannel = value(namespace, "kube-flannel-cfg", "net-conf.json")
		}
	}
	state.Record = value(system, clusterstate.Name, clusterstate.Key)
	if err != nil {
		return state, err
	}
	if state.DaemonSets, err = client.Workloads().ListDaemonSets(ctx); err != nil {
		return state, err
	}
	state.Nodes, err = client.Nodes().List(ctx)
	return state, err
}
