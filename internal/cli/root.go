package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/bundlecmd"
	"slipway.dev/slipway/internal/cli/movecmd"
	"slipway.dev/slipway/internal/cli/operatorcmd"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/sandboxcmd"
	"slipway.dev/slipway/internal/cli/view"
)

// app is one run of the program, with everything from which the commands get their parts.
type app struct {
	*services
	clusters *clusterChooser
	files    *clusterFiles
	subjects *subjectReader
	runner   *operationRunner
	selector *hostSelector
	plugins  *pluginFinder
	hasBegun bool // reports whether a command was found and its flags were parsed
}

func newApp(s Streams, env Env, create NewService) *app {
	c := &console{Streams: s, env: env, format: view.Text, logs: &logWriter{w: s.Err}}
	w := &workspace{console: c}
	open := &services{workspace: w, create: create}
	clusters := &clusterChooser{workspace: w, open: open.openClusters}
	files := &clusterFiles{workspace: w, open: open.openClusters}
	contexts := &mergedContexts{workspace: w, open: open.openAccess, openState: open.openClusters}
	return &app{
		services: open, clusters: clusters, files: files,
		subjects: &subjectReader{files: files, clusters: clusters},
		runner:   &operationRunner{console: c, open: open.openPlanner, contexts: contexts},
		selector: &hostSelector{console: c, clusters: clusters, open: open.openHosts, openState: open.openClusters},
		plugins:  &pluginFinder{c},
	}
}

func (a *app) newRootCommand() *cobra.Command {
	root := program.MarkTextOnly(&cobra.Command{
		Use:   "slipway",
		Short: "Create, change, repair and delete Kubernetes clusters",
		Long: `Slipway creates, changes, repairs and deletes Kubernetes clusters on Linux
machines over SSH. It shows a plan before every change. You can interrupt an
operation at any time and resume it.

Exit codes:
  0    Done.
  1    Failed; you can resume.
  2    Refused; nothing was changed.
  3    Finished with failed hosts.
  4    Action needed (plan --exit-code, certs check).
  5    Another operation is running on the cluster.
  130  Interrupted; you can resume.`,
		Example: `  slipway create cluster                     # a one-node cluster on this machine
  slipway create config --host root@10.0.0.11=control-plane \
      --host root@10.0.0.12=worker > prod.yaml
  slipway create cluster -f prod.yaml
  slipway kubectl prod -- get nodes`,
		SilenceErrors: true, SilenceUsage: true,
		RunE:              showHelp,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkOutputFormat(cmd) },
	})
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.addGlobalFlags(root)
	a.addCommands(root)
	a.markBegin(root)
	return root
}

// showHelpOfTopic shows the help of the named command.
func showHelpOfTopic(cmd *cobra.Command, args []string) error {
	topic, _, err := cmd.Root().Find(args)
	if err != nil {
		return newUsageError(err, cmd.Root(), args)
	}
	topic.InitDefaultHelpFlag() // otherwise the help does not list it
	return topic.Help()
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func (a *app) addGlobalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVarP(&a.output, "output", "o", "text", "output `format`: text, json or yaml")
	f.BoolVarP(&a.yes, "yes", "y", false, "continue without asking for confirmation")
	f.BoolVar(&a.debug, "debug", false, "show debug logs, the output of programs, and unchanged steps")
	f.BoolVar(&a.noColour, "no-color", false, "do not use colours (same as NO_COLOR)")
	program.CompleteFlag(root, "output", "text", "json", "yaml")
}

func (a *app) addCommands(root *cobra.Command) {
	for _, group := range []*cobra.Group{
		{ID: "change", Title: "Change clusters:"}, {ID: "see", Title: "Inspect and use clusters:"}, {ID: "more", Title: "Other commands:"},
	} {
		root.AddGroup(group)
	}
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("change", a.changeCommands()...)
	add("see", a.inspectCommands()...)
	add("more", a.otherCommands()...)
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.InitDefaultHelpCmd()
	if topics, _, err := root.Find([]string{"help"}); err == nil {
		topics.Run, topics.RunE = nil, showHelpOfTopic
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		program.MarkTextOnly(completion).RunE = showHelp
		for _, shell := range completion.Commands() {
			program.MarkTextOnly(shell)
		}
	}
}

// changeCommands returns the commands that change clusters.
func (a *app) changeCommands() []*cobra.Command {
	operation := operationCommand{clusters: a.clusters, subjects: a.subjects, runner: a.runner}
	file := fileCommand{files: a.files, runner: a.runner}
	describe := describeCommand{workspace: a.workspace, open: a.openDescriber}
	checker := &prechecker{console: a.console, open: a.openInspector}
	check := certsCheckCommand{console: a.console, clusters: a.clusters, subjects: a.subjects, open: a.openInspector}
	return []*cobra.Command{
		newCreateCommand(newCreateClusterCommand(file), newCreateConfigCommand(describe), newCreateManifestCommand(describe)),
		newConvertCommand(convertCommand{a.workspace}),
		newAddCommand(newAddNodesCommand(operation)),
		newPlanCommand(planCommand{workspace: a.workspace, operationCommand: operation}),
		newApplyCommand(applyCommand{operationCommand: operation, files: a.files}),
		newUpgradeCommand(upgradeCommand{operationCommand: operation, prechecker: checker}),
		newResumeCommand(operation),
		newRollbackCommand(operation),
		newCancelCommand(cancelCommand{console: a.console, clusters: a.clusters, open: a.openOperations}),
		newDeleteCommand(newDeleteClusterCommand(operation), newDeleteNodesCommand(operation)),
		newRebootCommand(newRebootNodesCommand(operation)),
		newInitCommand(newInitOSCommand(file), newInitRegistryCommand(file)),
		newCertsCommand(newCertsCheckCommand(check),
			newCertsRenewCommand(certsRenewCommand{operationCommand: operation, open: a.openClusters}), newRotateCACommand(operation)),
		newPrecheckCommand(precheckCommand{prechecker: checker, files: a.files, clusters: a.clusters, subjects: a.subjects}),
	}
}

// inspectCommands returns the commands that inspect and use clusters.
func (a *app) inspectCommands() []*cobra.Command {
	operation := operationCommand{clusters: a.clusters, subjects: a.subjects, runner: a.runner}
	get := getCommand{workspace: a.workspace, clusters: a.clusters, open: a.openClusters}
	inspect := inspectCommand{console: a.console, clusters: a.clusters, open: a.openInspector}
	backup := backupCommand{console: a.console, clusters: a.clusters, open: a.openBackups}
	operations := operationsCommand{console: a.console, clusters: a.clusters, open: a.openOperations, openState: a.openClusters}
	host := hostCommand{console: a.console, selector: a.selector}
	return []*cobra.Command{
		newGetCommand(get),
		newUseCommand(get),
		newClusterInfoCommand(inspect),
		newEtcdCommand(inspect, newEtcdSnapshotCommand(backup), newEtcdSnapshotsCommand(backup), newEtcdDrillCommand(backup),
			newEtcdDefragCommand(operation), newEtcdRestoreCommand(operation), newEtcdRescueCommand(operation)),
		newOperationsCommand(operations),
		newKubeconfigCommand(kubeconfigCommand{workspace: a.workspace, clusters: a.clusters, open: a.openAccess}),
		newKubectlCommand(kubectlCommand{console: a.console, clusters: a.clusters, open: a.openAccess}),
		newExecCommand(host),
		newCpCommand(host),
		newSSHCommand(host),
		newDumpCommand(dumpCommand{workspace: a.workspace, clusters: a.clusters, open: a.openInspector}),
	}
}

// otherCommands returns the commands that are not about clusters.
func (a *app) otherCommands() []*cobra.Command {
	p := program.Program{
		In: a.In, Out: a.Out, Err: a.Err, Size: a.Size,
		WriteResult: a.writeResult, AskYesNo: a.askYesNo, FindDirectories: a.findDirectories, LoadReleases: a.loadCatalogue,
	}
	return []*cobra.Command{
		sandboxcmd.NewCommand(p), bundlecmd.NewCommand(p), operatorcmd.NewCommand(p),
		movecmd.NewCommand(p, movecmd.Clusters{Choose: a.clusters.chooseCluster, CompleteNames: a.clusters.completeNames}, a.openMover),
		newVersionCommand(versionCommand{a.workspace}), newPluginCommand(a.plugins),
	}
}

// checkOutputFormat checks the global flags.
func (a *app) checkOutputFormat(cmd *cobra.Command) (err error) {
	if a.format, err = view.ParseFormat(a.output); err != nil {
		a.format = view.Text
		return err
	}
	if a.format != view.Text && program.IsTextOnly(cmd) {
		return fmt.Errorf("%s does not support -o %s", cmd.CommandPath(), a.format)
	}
	return nil
}

// markBegin makes every command set a.hasBegun before it runs: earlier errors are about
// the command line. It also turns off completion of files for commands without
// a completion function.
func (a *app) markBegin(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := refuseEmptyValues(cmd, args); err != nil {
				return err
			}
			a.hasBegun = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		a.markBegin(c)
	}
}
