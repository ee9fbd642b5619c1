package lifecycle

// Reasons in the status of containers and pods. Where the API or the kubelet
// has a word, it is theirs.
const (
	ReasonCompleted                  = "Completed"
	ReasonError                      = "Error"
	ReasonOOMKilled                  = "OOMKilled"
	ReasonContainerCannotRun         = "ContainerCannotRun"
	ReasonContainerStatusUnknown     = "ContainerStatusUnknown"
	ReasonContainerCreating          = "ContainerCreating"
	ReasonPodInitializing            = "PodInitializing"
	ReasonCrashLoopBackOff           = "CrashLoopBackOff"
	ReasonErrImagePull               = "ErrImagePull"
	ReasonImagePullBackOff           = "ImagePullBackOff"
	ReasonErrImageNeverPull          = "ErrImageNeverPull"
	ReasonInvalidImageName           = "InvalidImageName"
	ReasonImageInspectError          = "ImageInspectError"
	ReasonRegistryUnavailable        = "RegistryUnavailable"
	ReasonCreateContainerConfigError = "CreateContainerConfigError"
	ReasonCreateContainerError       = "CreateContainerError"
	ReasonRunContainerError          = "RunContainerError"
	ReasonPostStartHookError         = "PostStartHookError"
	ReasonPreStopHookError           = "PreStopHookError"
	ReasonFailedMount                = "FailedMount"
	ReasonFailedCreatePodSandBox     = "FailedCreatePodSandBox"
	ReasonRestartingAllContainers    = "RestartingAllContainers"
	ReasonNodePorts                  = "NodePorts"
	ReasonDeadlineExceeded           = "DeadlineExceeded"
)

// Reasons of conditions.
const (
	ReasonPodCompleted             = "PodCompleted"
	ReasonPodFailed                = "PodFailed"
	ReasonContainersNotReady       = "ContainersNotReady"
	ReasonContainersNotInitialized = "ContainersNotInitialized"
	ReasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	ReasonUnknownContainerStatuses = "UnknownContainerStatuses"
	ReasonPodSandboxNotReady       = "PodSandboxNotReady"
)
