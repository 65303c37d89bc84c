package controlplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	// reloadPeriod is the time between two looks of the API server at its encryption keys.
	reloadPeriod = time.Second
	reloadTime   = time.Minute
	// reloadMetric has the hash of the encryption configuration that is in use.
	reloadMetric = "apiserver_encryption_config_controller_last_config_info"
)

// setReloadPeriod sets how fast new encryption keys are used. The library's default is a
// minute.
func setReloadPeriod() {
	if controller.EncryptionConfigFileChangePollDuration != reloadPeriod { // a server that is running already reads it
		controller.EncryptionConfigFileChangePollDuration = reloadPeriod
	}
}

// WaitForEncryptionKeys waits until the API server uses the saved encryption keys.
func (s *Server) WaitForEncryptionKeys(ctx context.Context) error {
	file := s.config.Keys.EncryptionConfig()
	err := wait.PollUntilContextTimeout(ctx, reloadPeriod/4, reloadTime, true, func(context.Context) (bool, error) {
		hash, err := encryptionconfig.GetEncryptionConfigHash(file)
		if err != nil {
			return false, err
		}
		return isHashInUse(hash)
	})
	if err != nil {
		return fmt.Errorf("waiting until the API server uses the encryption keys of %s: %w", file, err)
	}
	return nil
}

// isHashInUse reports whether the API server has loaded the encryption configuration with a
// hash.
func isHashInUse(hash string) (bool, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return false, err
	}
	for _, family := range families {
		if family.GetName() != reloadMetric {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "hash" && label.GetValue() == hash {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
