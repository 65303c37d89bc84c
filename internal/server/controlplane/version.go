package controlplane

import "k8s.io/component-base/version"

// KubernetesVersion returns the version of the libraries of the API server.
func KubernetesVersion() string { return version.Get().GitVersion }
