package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

const (
	// serverName is the name of the API server in its own Leases.
	serverName = "slipwayd"
	// interruptTime limits the wait for the hooks of a start that is interrupted.
	interruptTime = 15 * time.Second
	// completeCheck is the check of /readyz for the last steps of the start.
	completeCheck = "slipway-start"
	// PathPrefix is the prefix of the paths that Handlers serve.
	PathPrefix = "/slipway/v1"
	// longPrefix is the prefix of paths whose requests may take longer than a minute, such
	// as a backup.
	longPrefix = PathPrefix + "/server/"
)

// serveAPI starts the API server on a listener and waits until it is ready. ctx limits the
// start, serving the whole run.
func (s *Server) serveAPI(ctx, serving context.Context, listener net.Listener) error {
	o, err := s.newOptions(serving, listener)
	if err != nil {
		return err
	}
	completed, err := o.Complete(serving, nil, nil)
	if err != nil {
		return fmt.Errorf("completing the options of the API server: %w", err)
	}
	if problems := completed.Validate(); len(problems) > 0 {
		return fmt.Errorf("checking the options of the API server: %w", utilerrors.NewAggregate(problems))
	}
	aggregator, err := s.buildChain(completed)
	if err != nil {
		return err
	}
	mux := aggregator.GenericAPIServer.Handler.NonGoRestfulMux
	for at, handler := range s.config.Handlers {
		mux.Handle(path.Join(PathPrefix, at), handler)
	}
	mux.HandlePrefix(namespacePrefix, subresources(s.config.Subresources))
	if err := aggregator.GenericAPIServer.AddReadyzChecks(healthz.NamedCheck(completeCheck, s.checkComplete)); err != nil {
		return fmt.Errorf("adding the check of the start: %w", err)
	}
	s.loopback = aggregator.GenericAPIServer.LoopbackClientConfig
	prepared, err := aggregator.PrepareRun()
	if err != nil {
		return fmt.Errorf("preparing the API server: %w", err)
	}
	ended := make(chan error, 1)
	s.background.Go(func() {
		err := prepared.Run(serving)
		ended <- err
		if err != nil && serving.Err() == nil {
			s.end(fmt.Errorf("the API server has ended: %w", err))
		}
	})
	return s.waitUntilReady(ctx, ended)
}

// checkComplete returns an error until the start is complete: the kinds, roles and policies of
// Slipway are served.
func (s *Server) checkComplete(*http.Request) error {
	if !s.isComplete.Load() {
		return errors.New("the kinds, roles and policies of Slipway are being applied")
	}
	return nil
}

// waitUntilReady waits until the API server is ready, except for the last steps of the start.
// The error has its last response. The end of ctx is noticed when the server is ready or after
// interruptTime: the library ends the process if a hook of its start is interrupted. Without
// etcd, the wait ends at once.
func (s *Server) waitUntilReady(ctx context.Context, ended <-chan error) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	var last string
	var interrupted time.Time
	waiting := context.WithoutCancel(ctx)
	err = wait.PollUntilContextTimeout(waiting, 20*time.Millisecond, readyTime, true, func(waiting context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("it has ended: %w", err)
		default:
		}
		if cause := context.Cause(ctx); cause != nil {
			if interrupted.IsZero() {
				interrupted = time.Now()
			}
			if !errors.Is(cause, context.Canceled) || time.Since(interrupted) > interruptTime {
				return false, cause
			}
		}
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").
			Param("verbose", "true").Param("exclude", completeCheck).DoRaw(waiting)
		if last = string(body); err != nil && last == "" {
			last = err.Error()
		}
		return err == nil, nil
	})
	if err == nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("it is not ready after %s; its last response: %s", readyTime, last)
	}
	return fmt.Errorf("starting the API server: %w", err)
}

// buildChain returns the API server: an aggregator in front of the native resources, and these
// in front of custom resources.
func (s *Server) buildChain(o options.CompletedOptions) (*aggregatorapiserver.APIAggregator, error) {
	generic, informers, storage, err := controlplaneapiserver.BuildGenericConfig(o,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme},
		servedResources(), generatedopenapi.GetOpenAPIDefinitions, nil)
	if err != nil {
		return nil, fmt.Errorf("configuring the API server: %w", err)
	}
	generic.RESTOptionsGetter = servedStorage{generic.RESTOptionsGetter, servedResources()}
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(s.guard.wrap(api), c)
	}
	generic.RequestInfoResolver = subresourceResolver{genericapiserver.NewRequestInfoResolver(generic)}
	isLong := generic.LongRunningFunc
	generic.LongRunningFunc = func(r *http.Request, info *apirequest.RequestInfo) bool {
		return isLong(r, info) || strings.HasPrefix(info.Path, longPrefix)
	}
	resolver := webhook.NewDefaultServiceResolver()
	native, initializers, err := controlplaneapiserver.CreateConfig(o, generic, informers, nil, storage, resolver, nil)
	if err != nil {
		return nil, fmt.Errorf("configuring the native resources: %w", err)
	}
	auth := webhook.NewDefaultAuthenticationInfoResolverWrapper(
		native.ProxyTransport, generic.EgressSelector, generic.LoopbackClientConfig, generic.TracerProvider)
	// With one server, a definition is served at once; with several, each waits 5 s.
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(*generic, informers, initializers, o, 1, resolver, auth)
	if err != nil {
		return nil, fmt.Errorf("configuring custom resources: %w", err)
	}
	aggregation, err := controlplaneapiserver.CreateAggregatorConfig(
		*generic, o, informers, resolver, native.ProxyTransport, native.Extra.PeerProxy, initializers)
	if err != nil {
		return nil, fmt.Errorf("configuring the aggregation of APIs: %w", err)
	}
	aggregation.ExtraConfig.DisableRemoteAvailableConditionController = true
	return connectServers(native.Complete(), extensions.Complete(), aggregation.Complete())
}

// connectServers makes the servers of the chain, each of which passes on what it does not serve.
func connectServers(
	native controlplaneapiserver.CompletedConfig, extensions apiextensionsapiserver.CompletedConfig,
	aggregation aggregatorapiserver.CompletedConfig,
) (*aggregatorapiserver.APIAggregator, error) {
	last := notfoundhandler.New(native.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	custom, err := extensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(last))
	if err != nil {
		return nil, fmt.Errorf("creating the server of custom resources: %w", err)
	}
	served, err := native.New(serverName, custom.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("creating the server of native resources: %w", err)
	}
	client, err := kubernetes.NewForConfig(native.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	providers, err := native.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("selecting the native resources: %w", err)
	}
	if err := served.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("installing the native resources: %w", err)
	}
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	aggregator, err := controlplaneapiserver.CreateAggregatorServer(aggregation, served.GenericAPIServer,
		custom.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		extensions.GenericConfig.MergedResourceConfig.ResourceEnabled(definitions),
		controlplaneapiserver.DefaultGenericAPIServicePriorities())
	if err != nil {
		return nil, fmt.Errorf("creating the aggregator: %w", err)
	}
	return aggregator, nil
}
