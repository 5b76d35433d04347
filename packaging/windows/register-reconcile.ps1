# Runs gpu-agent reconcile at every start of Windows, as SYSTEM, with a time limit.
# In an elevated PowerShell:
#
#   .\register-reconcile.ps1
#   .\register-reconcile.ps1 -Agent 'D:\tools\gpu-agent.exe'
#   .\register-reconcile.ps1 -Unregister

[CmdletBinding()]
param(
    [string] $Agent = (Join-Path $env:ProgramFiles 'gpu-agent\gpu-agent.exe'),
    [switch] $Unregister
)

$ErrorActionPreference = 'Stop'
$name = 'gpu-agent reconcile'

$user = New-Object Security.Principal.WindowsPrincipal ([Security.Principal.WindowsIdentity]::GetCurrent())
if (-not $user.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
    throw 'Run this as an administrator.'
}

if ($Unregister) {
    Unregister-ScheduledTask -TaskName $name -Confirm:$false
    return
}

if (-not (Test-Path -LiteralPath $Agent -PathType Leaf)) {
    throw "There is no agent at $Agent; say with -Agent where it is."
}

# The task runs as SYSTEM: whoever may change the program, its folder, or move away a folder above it is SYSTEM, too.
# gpu-agent service install asks the same of itself (CheckProgram in internal/agent/statedir).
$trusted = @(
    'S-1-5-18'     # SYSTEM
    'S-1-5-32-544' # administrators
    'S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464' # TrustedInstaller
    'S-1-3-0'      # who makes a file owns it; only those who may write make one
    [Security.Principal.WindowsIdentity]::GetCurrent().User.Value
)
# DeleteSubdirectoriesAndFiles, Delete, ChangePermissions, TakeOwnership and GENERIC_ALL; in the first two places also
# WriteData, AppendData and GENERIC_WRITE.
$replacing = 0x40 -bor 0x10000 -bor 0x40000 -bor 0x80000 -bor 0x10000000
$changing = $replacing -bor 0x2 -bor 0x4 -bor 0x40000000
$Agent = (Get-Item -LiteralPath $Agent -Force).FullName
$place = $Agent
for ($depth = 0; $place; $depth++) {
    if ((Get-Item -LiteralPath $place -Force).Attributes -band [IO.FileAttributes]::ReparsePoint) {
        throw "$place is a link; say with -Agent where the agent itself is."
    }
    $rights = if ($depth -lt 2) { $changing } else { $replacing }
    $acl = Get-Acl -LiteralPath $place
    $owner = $acl.GetOwner([Security.Principal.SecurityIdentifier])
    $others = @($acl.GetAccessRules($true, $true, [Security.Principal.SecurityIdentifier]) | Where-Object {
        $_.AccessControlType -eq 'Allow' -and ([int] $_.FileSystemRights -band $rights) -and
        ($depth -lt 2 -or -not ($_.PropagationFlags -band [Security.AccessControl.PropagationFlags]::InheritOnly))
    } | ForEach-Object { $_.IdentityReference } | Where-Object { $trusted -notcontains $_.Value })
    if ($trusted -notcontains $owner.Value) { $others = @($owner) + $others }
    if ($others.Count -gt 0) {
        throw "$Agent would run as SYSTEM, and $($others[0].Value) can change or replace $place. Put the agent into a folder that only administrators may write to, such as $env:ProgramFiles\gpu-agent."
    }
    $place = Split-Path -LiteralPath $place
}

$action = New-ScheduledTaskAction -Execute "`"$Agent`"" -Argument 'reconcile --timeout 4m'
$trigger = New-ScheduledTaskTrigger -AtStartup
# SYSTEM by its SID: its name is translated.
$principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -LogonType ServiceAccount -RunLevel Highest
# The limit is above the agent's own. What is cut off stays in the journal, and the next
# run goes on with it.
# Hyper-V, the cluster service and shared volumes come later than the task: reconcile waits
# for them, and what fails is tried again.
$settings = New-ScheduledTaskSettingsSet -RestartCount 5 -RestartInterval (New-TimeSpan -Minutes 2) -ExecutionTimeLimit (New-TimeSpan -Minutes 5) -MultipleInstances IgnoreNew -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
$description = 'Settles GPU changes that were cut off by a crash or a restart.'

Register-ScheduledTask -TaskName $name -Action $action -Trigger $trigger -Principal $principal -Settings $settings -Description $description -Force | Out-Null
Write-Output "Registered the task '$name'. To run it now: Start-ScheduledTask -TaskName '$name'"
