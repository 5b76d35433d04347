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
