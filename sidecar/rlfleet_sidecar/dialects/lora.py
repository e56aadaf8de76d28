"""A worker's adapters for trainers, whose calls have neither operation nor version."""

from pydantic import ValidationError

from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.dialects.operation import operation_of
from rlfleet_sidecar.dialects.retry import patience_of, patiently
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.http.request_body import complaint
from rlfleet_sidecar.lora.rules import demand_bare, demand_undeclared
from rlfleet_sidecar.lora.serving import LoRAServing
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal import Journal


class TrainerLoRA:
    """Loads and unloads adapters by commands without a fence."""

    def __init__(
        self, settings: SidecarSettings, journal: Journal, fencing: Fencing, adapters: LoRAServing
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._fencing = fencing
        self._adapters = adapters
        self._patience_s = patience_of(settings)

    def known(self, name: str) -> AdapterReport | None:
        """Return an adapter's report; raises if the fleet's spec owns its adapters."""
        known = self._adapters.reports(self._journal.state.boot)
        demand_undeclared(known)
        return next((adapter for adapter in known if adapter.name == name), None)

    def loaded(self) -> dict[str, int | None]:
        """Return the engine's number of each loaded adapter, also of the spec's."""
        known = self._adapters.reports(self._journal.state.boot)
        return {adapter.name: adapter.number for adapter in known if adapter.is_loaded}

    def demand_bare(self) -> None:
        """Raise if an adapter has the model's name, because it would hide new weights."""
        reports = self._adapters.reports(self._journal.state.boot)
        demand_bare(self._settings.model_name, reports)

    async def is_adapter(self, directory: str) -> bool:
        """Return whether a directory contains an adapter."""
        return await self._adapters.is_adapter(directory)

    async def load(self, name: str, directory: str, operation: str | None = None) -> AdapterReport:
        """Wait for an adapter, check and load it; replaces an adapter of that name.

        During its trainer's pause it is a part of that change.
        """

        async def load() -> None:
            self.known(name)
            await self._fencing.unfenced(self._request(name, directory, operation))

        await patiently(load, self._patience_s)
        return self.known(name) or AdapterReport(name=name)

    def _request(self, name: str, directory: str, operation: str | None) -> LoadAdapterRequest:
        try:
            return LoadAdapterRequest(
                operation=operation or operation_of(self._journal),
                name=name,
                version=rules.adapter_version(directory),
                path=directory.rstrip("/"),
                wait_s=self._settings.trainer_adapter_wait_s,
            )
        except ValidationError as error:
            why = complaint(error.errors(include_url=False, include_input=False))
            raise SidecarError(Code.INVALID_REQUEST, f"the adapter's {why}") from error

    async def unload(self, name: str) -> None:
        """Unload a name; no error if it is not loaded."""

        async def unload() -> None:
            known = self.known(name)
            version = (known and known.version) or rules.UNNAMED
            await self._fencing.unfenced(
                UnloadAdapterRequest(
                    operation=operation_of(self._journal), name=name, version=version
                )
            )

        await patiently(unload, self._patience_s)
